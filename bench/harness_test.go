package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/perf/benchfmt"
)

// options is what the command line chooses.
type options struct {
	rows    string
	quick   bool
	out     string
	program string
	idle    time.Duration
	bursts  int
	pairs   int
	storm   time.Duration
}

// bench is one run of this program.
type bench struct {
	options
	ctx    context.Context
	report *Report
	dir    string // for what is built and written
	root   string // of the source tree
	group  string // in which rows are added
	ends   []func()
}

// A group is a set of rows that are measured together.
type group struct {
	name, title string
	measure     func(*bench)
}

// scope runs f, and then ends what it has started, the latest first.
func (b *bench) scope(f func()) {
	was := b.ends
	b.ends = nil
	defer func() {
		for _, end := range slices.Backward(b.ends) {
			end()
		}
		b.ends = was
	}()
	f()
}

// atEnd has the scope end with this.
func (b *bench) atEnd(end func()) { b.ends = append(b.ends, end) }

// failure is what [check] panics with.
type failure struct{ error }

// check gives up what is being measured where there is an error: [catch] returns it.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.error
	default:
		panic(p)
	}
}

// pick is the number of runs, or how long they take, quick or not.
func pick[T any](b *bench, long, quick T) T {
	if b.quick {
		return quick
	}
	return long
}

// sleep waits, unless the bench is to end.
func (b *bench) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
		check(b.ctx.Err())
	}
}

// helpers are the small programs that are watched or that we are measured
// beside: C, compiled again each time, and Python.
//
//go:embed helpers
var helpers embed.FS

// python is Debian's, which has its torch and psutil.
const python = "/usr/bin/python3"

// build compiles the helpers, and rsswarden as `make build` does, into b.dir.
func (b *bench) build() {
	for _, e := range must(fs.ReadDir(helpers, "helpers")) {
		file := b.path(e.Name())
		check(os.WriteFile(file, must(helpers.ReadFile("helpers/"+e.Name())), 0o600))
		if name, isC := strings.CutSuffix(file, ".c"); isC {
			output(b.command("cc", "-O2", "-o", name, file))
		}
	}
	if b.program == "" {
		b.program = b.goBuild("cmd/rsswarden", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w")
	} else {
		b.program = must(filepath.Abs(b.program))
	}
}

// goBuild builds one of our programs, and returns its file.
func (b *bench) goBuild(dir string, flags ...string) string {
	program := b.path(filepath.Base(dir))
	cmd := b.command(slices.Concat([]string{"go", "build"}, flags, []string{"-o", program, "./" + dir})...)
	cmd.Dir = b.root
	output(cmd)
	return program
}

// command is one that ends with the bench.
func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	// Before SIGKILL, so that what a wrapper has started gets to know.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = plain(os.Environ())
	return cmd
}

// output runs a command and returns what it prints, on stderr too.
func output(cmd *exec.Cmd) []byte {
	out, err := cmd.CombinedOutput()
	if err != nil {
		check(fmt.Errorf("cannot run %s: %w\n%s", filepath.Base(cmd.Path), err, out))
	}
	return out
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// lacks says that Debian's Python cannot be used with these modules, which leaves a peer
// out.
func (b *bench) lacks(peer, modules string) bool {
	out, err := b.command(python, "-c", "import "+modules).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		b.skip(fmt.Sprintf("%s: %s with %s is not there: %v %s", peer, python, modules, err, lines[len(lines)-1]))
	}
	return err != nil
}

// under puts us in front of a command, with these options.
func (b *bench) under(options ...string) wrapper {
	return func(command ...string) []string {
		return slices.Concat([]string{b.program, "run"}, options, []string{"--"}, command)
	}
}

// A child is a program that was started and is talked to by lines. All that we
// start end when their standard input does, so that nothing is left behind
// where we are killed.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a program, which ends with the scope.
func (b *bench) start(args ...string) *child {
	cmd := b.command(args...)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		check(fmt.Errorf("cannot start %s: %w", args[0], err))
	}
	c := &child{cmd, in, bufio.NewReaderSize(out, 1<<20)}
	b.atEnd(func() { c.end() })
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line returns the next line that the program says.
func (c *child) line() string {
	text, err := c.out.ReadString('\n')
	if err != nil {
		check(fmt.Errorf("cannot read what %s says: %w", filepath.Base(c.cmd.Path), err))
	}
	return strings.TrimSpace(text)
}

// say sends it a line.
func (c *child) say(format string, args ...any) {
	must(fmt.Fprintf(c.in, format+"\n", args...))
}

// expect reads a line "WORD NUMBER".
func (c *child) expect(word string) (n int) {
	text := c.line()
	if _, err := fmt.Sscanf(text, word+" %d", &n); err != nil {
		check(fmt.Errorf("cannot understand %s: %q, not %q", filepath.Base(c.cmd.Path), text, word))
	}
	return n
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

// A wrapper puts words in front of a command, as [bench.under] does.
type wrapper func(command ...string) []string

// crowd starts n sleeping processes, the first of them the parent of all
// others, behind the words of wrap. Its PID is theirs, not the wrapper's.
func (b *bench) crowd(n int, wrap wrapper) (*child, int) {
	return b.sleepers(wrap, b.path("crowd"), fmt.Sprint(n))
}

// sleepers starts a helper, behind the words of wrap, that says "ready PID" once
// all of its processes sleep.
func (b *bench) sleepers(wrap wrapper, args ...string) (*child, int) {
	if wrap != nil {
		args = wrap(args...)
	}
	c := b.start(args...)
	return c, c.expect("ready")
}

// goTest runs benchmarks, with a variable of the environment, and returns what
// [metrics] reads.
func (b *bench) goTest(env, packages string, args ...string) (names []string, told map[string]map[string][]float64) {
	cmd := b.command(slices.Concat([]string{"go", "test", "-run", "^$"}, args, []string{packages})...)
	cmd.Dir = b.root
	cmd.Env = append(cmd.Env, env)
	return metrics(output(cmd))
}

// metrics reads the output of go test: the benchmarks in the order in which they come,
// and of each what it told by unit, a number a run; times as sec/op.
func metrics(out []byte) (names []string, told map[string]map[string][]float64) {
	told = map[string]map[string][]float64{}
	for r := benchfmt.NewReader(bytes.NewReader(out), "go test"); r.Scan(); {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := processors.ReplaceAllString(res.Name.String(), "")
		if told[name] == nil {
			names, told[name] = append(names, name), map[string][]float64{}
		}
		for _, v := range res.Values {
			told[name][v.Unit] = append(told[name][v.Unit], v.Value)
		}
	}
	return names, told
}

// processors is what go test appends to a name: GOMAXPROCS.
var processors = regexp.MustCompile(`-\d+$`)
