package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// work reads the number of a record from each line of stdin and answers on
// stdout "NUMBER DIGEST". It ends with status 0 at the end of stdin, so when the
// parent is gone, and after SIGTERM once the record it is at is answered.
func work(path string, stdin io.Reader, stdout, stderr io.Writer) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	env, err := openRead(path)
	if err != nil {
		fmt.Fprintf(stderr, "lmdbload worker: %v\n", err)
		return 1
	}
	// Reading may block for ever: it has a goroutine of its own, which ends with
	// the process.
	requests := make(chan string)
	go func() {
		defer close(requests)
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			requests <- lines.Text()
		}
	}()
	for {
		// Where both are ready select picks either: the signal goes first.
		select {
		case <-term:
			return 0
		default:
		}
		select {
		case <-term:
			return 0
		case request, ok := <-requests:
			if !ok {
				return 0
			}
			record, err := strconv.Atoi(request)
			if err == nil {
				err = view(env, key(record), func(value []byte) error {
					_, err := fmt.Fprintf(stdout, "%d %x\n", record, sha256.Sum256(value))
					return err
				})
			}
			if err != nil {
				fmt.Fprintf(stderr, "lmdbload worker: %v\n", err)
				return 1
			}
		}
	}
}

// workerCommand returns what makes the command of one more worker over the LMDB
// at path: this program again, known to others as "lmdbload worker PATH".
func workerCommand(path string, stderr io.Writer) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("cannot find lmdbload itself: %w", err)
		}
		cmd := exec.Command(self)
		cmd.Args = []string{"lmdbload", "worker", path}
		cmd.Stderr = stderr
		return cmd, nil
	}
}
