package slurm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// pair is one parameter of a configuration file. For an Include line Key is
// "include" and Value the file's name as it is written there.
type pair struct {
	Key   string // in lower case
	Value string
}

// parseConf reads a file of the format of slurm.conf(5) and cgroup.conf(5). What Slurm would
// reject is skipped. Of lines that describe a node, a partition and the like only the first
// pair is kept: their other keys are names of their own.
func parseConf(b []byte) []pair {
	var pairs []pair
	for line := range logicalLines(string(b)) {
		pairs = appendPairs(pairs, line)
	}
	return pairs
}

// logicalLines yields the lines without comments and with continued ones joined.
func logicalLines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var joined strings.Builder
		for line := range strings.Lines(text) {
			line = strings.TrimRight(stripComment(line), " \t\r\n\v\f")
			if rest, ok := strings.CutSuffix(line, `\`); ok {
				joined.WriteString(rest)
				continue
			}
			joined.WriteString(line)
			whole := joined.String()
			joined.Reset()
			if !yield(whole) {
				return
			}
		}
		if joined.Len() > 0 {
			yield(joined.String())
		}
	}
}

func stripComment(line string) string {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			if i+1 < len(line) && line[i+1] == '#' {
				i++
			}
		case '#':
			return line[:i]
		}
	}
	return line
}

// records are the keys that open a line with a name space of its own.
var records = map[string]bool{
	"nodename": true, "partitionname": true, "nodeset": true,
	"frontendname": true, "downnodes": true, "switchname": true,
}

func appendPairs(pairs []pair, line string) []pair {
	rest := strings.TrimLeft(line, " \t")
	if word := strings.Fields(rest); len(word) >= 2 && strings.EqualFold(word[0], "include") {
		return append(pairs, pair{"include", strings.ReplaceAll(word[1], `\#`, "#")})
	}
	for rest != "" {
		key, after, ok := cutKey(rest)
		if !ok {
			// Not a pair: go on behind the next blank, as the pattern of
			// parse_config.c would not match here either.
			n := strings.IndexAny(rest, " \t")
			if n < 0 {
				return pairs
			}
			rest = strings.TrimLeft(rest[n:], " \t")
			continue
		}
		var value string
		value, rest = cutValue(after)
		pairs = append(pairs, pair{key, strings.ReplaceAll(value, `\#`, "#")})
		if records[key] {
			return pairs
		}
	}
	return pairs
}

// cutKey takes "key", blanks, perhaps an operator, and "=" from the front.
func cutKey(s string) (key, rest string, ok bool) {
	n := 0
	for n < len(s) && isKeyByte(s[n]) {
		n++
	}
	if n == 0 {
		return "", "", false
	}
	rest = strings.TrimLeft(s[n:], " \t")
	if rest != "" && strings.IndexByte("-*+/", rest[0]) >= 0 {
		rest = rest[1:]
	}
	if rest == "" || rest[0] != '=' {
		return "", "", false
	}
	return strings.ToLower(s[:n]), strings.TrimLeft(rest[1:], " \t"), true
}

func isKeyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}

func cutValue(s string) (value, rest string) {
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		if value, rest, ok := strings.Cut(quoted, `"`); ok {
			return value, strings.TrimLeft(rest, " \t")
		}
	}
	n := strings.IndexAny(s, " \t")
	if n < 0 {
		return s, ""
	}
	return s[:n], strings.TrimLeft(s[n:], " \t")
}

// confFile is a configuration file with all that it includes.
type confFile struct {
	Path string
	// Missing names the files that are meant to be read with it and could not
	// be: what they say is not known.
	Missing []string
	values  map[string]string
	files   int // that were read
}

// maxIncludes bounds how deep files may include each other, and maxFiles how many are
// read in all: ten lines that include their own file would be 10^8 readings.
const (
	maxIncludes = 8
	maxFiles    = 256
)

// readConf reads a configuration file and what it includes; the error is that of the file
// itself.
func readConf(path string, readFile func(string) ([]byte, error)) (*confFile, error) {
	c := &confFile{Path: path, values: make(map[string]string)}
	if err := c.read(path, readFile, 0); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return c, nil
}

// Get returns a parameter by its name in lower case. The last one written wins, as in Slurm.
func (c *confFile) Get(key string) (string, bool) {
	v, ok := c.values[key]
	return v, ok
}

func (c *confFile) read(path string, readFile func(string) ([]byte, error), depth int) error {
	c.files++
	b, err := readFile(path)
	if err != nil {
		return err
	}
	for _, p := range parseConf(b) {
		if p.Key != "include" {
			c.values[p.Key] = p.Value
			continue
		}
		// slurm.conf(5): "%c" stands for the cluster's name, a relative name
		// for a file beside slurm.conf.
		name := strings.ReplaceAll(p.Value, "%c", c.values["clustername"])
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(c.Path), name)
		}
		if c.files+len(c.Missing) >= maxFiles {
			c.Missing = append(c.Missing, name)
			return nil
		}
		if depth == maxIncludes || c.read(name, readFile, depth+1) != nil {
			c.Missing = append(c.Missing, name)
		}
	}
	return nil
}

// maxConf bounds the size of a configuration file that is read. A slurm.conf with a line
// for each of 10,000 nodes has 1 MiB.
const maxConf = 16 << 20

// ReadFile reads a regular file. Anything else, which could block for ever, is
// an error.
func ReadFile(name string) ([]byte, error) {
	// Opening a device may do something. What is open is looked at again: another file
	// may have the name by then.
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxConf:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxConf)
	}
	return io.ReadAll(io.LimitReader(f, maxConf))
}
