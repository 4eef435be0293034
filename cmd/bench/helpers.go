package main

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// helpers are the small programs that are watched or that we are measured
// beside: C, compiled anew each time, and Python.
//
//go:embed helpers
var helpers embed.FS

// python is Debian's, which has its torch and psutil.
const python = "/usr/bin/python3"

// build compiles the helpers, and rsswarden as `make build` does, into b.dir.
func (b *bench) build() error {
	entries, err := fs.ReadDir(helpers, "helpers")
	if err != nil {
		return fmt.Errorf("cannot list the helpers: %w", err)
	}
	for _, e := range entries {
		text, err := helpers.ReadFile("helpers/" + e.Name())
		if err != nil {
			return fmt.Errorf("cannot read the helper %s: %w", e.Name(), err)
		}
		file := b.path(e.Name())
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return fmt.Errorf("cannot write the helper %s: %w", e.Name(), err)
		}
		if name, isC := strings.CutSuffix(file, ".c"); isC {
			if out, err := exec.CommandContext(b.ctx, "cc", "-O2", "-o", name, file).CombinedOutput(); err != nil {
				return fmt.Errorf("cannot compile the helper %s: %w\n%s", e.Name(), err, out)
			}
		}
	}
	if b.program != "" {
		b.program, err = filepath.Abs(b.program)
		return err
	}
	b.program = b.path("rsswarden")
	cmd := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", b.program, "./cmd/rsswarden")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build rsswarden: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// missing says why Debian's Python cannot be used with these modules, empty where it can.
func (b *bench) missing(modules string) string {
	out, err := exec.CommandContext(b.ctx, python, "-c", "import "+modules).CombinedOutput()
	if err == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Sprintf("%s with %s is not there: %v %s", python, modules, err, lines[len(lines)-1])
}

// under returns the command line that has us run a command with these options.
func (b *bench) under(options []string, command ...string) []string {
	return append(append(append([]string{b.program, "run"}, options...), "--"), command...)
}

// A child is a program that was started and is talked to by lines. All that we
// start end when their standard input does, so that nothing is left behind
// where we are killed.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (b *bench) start(args ...string) (*child, error) {
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	// Before SIGKILL, so that what a wrapper has started gets to know.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = plain(os.Environ())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", args[0], err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", args[0], err)
	}
	return &child{cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line returns the next line that the program says.
func (c *child) line() (string, error) {
	text, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("cannot read what %s says: %w", filepath.Base(c.cmd.Path), err)
	}
	return strings.TrimSpace(text), nil
}

// expect reads a line "WORD NUMBER".
func (c *child) expect(word string) (int, error) {
	text, err := c.line()
	if err != nil {
		return 0, err
	}
	n := 0
	if _, err := fmt.Sscanf(text, word+" %d", &n); err != nil {
		return 0, fmt.Errorf("cannot understand %s: %q, not %q", filepath.Base(c.cmd.Path), text, word)
	}
	return n, nil
}

// end closes the program's standard input and waits for it.
func (c *child) end() error {
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s ended badly: %w", filepath.Base(c.cmd.Path), err)
	}
	return nil
}

// plain is the environment without what would change rsswarden's defaults or
// Python's.
func plain(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "RSSWARDEN") && !strings.HasPrefix(kv, "PYTHON") {
			out = append(out, kv)
		}
	}
	return append(out, "PYTHONDONTWRITEBYTECODE=1")
}

// crowd starts n sleeping processes, the first of them the parent of all
// others, behind the words of wrap. Its PID is theirs, not the wrapper's.
func (b *bench) crowd(n int, wrap func(...string) []string) (*child, int, error) {
	return b.sleepers([]string{b.path("crowd"), fmt.Sprint(n)}, wrap)
}

// sleepers starts a helper, behind the words of wrap, that says "ready PID" once
// all of its processes sleep.
func (b *bench) sleepers(args []string, wrap func(...string) []string) (*child, int, error) {
	if wrap != nil {
		args = wrap(args...)
	}
	c, err := b.start(args...)
	if err != nil {
		return nil, 0, err
	}
	pid, err := c.expect("ready")
	if err != nil {
		c.end()
		return nil, 0, err
	}
	return c, pid, nil
}
