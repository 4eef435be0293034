package alert

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// mostToken is how much of a file with a token is read, in bytes.
const mostToken = 16 << 10

// ReadToken reads the first line of a file. It may hang.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostToken))
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("cannot read the token: %s is empty", path)
	}
	return line, nil
}
