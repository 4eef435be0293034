package bench

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bench is one benchmark as it runs.
type bench struct {
	name  string // before each row's
	quick bool
	out   io.Writer
	ends  []func()
}

// run measures; the rows are printed as they are done.
func (b *bench) run(measure func(*bench)) (err error) {
	defer catch(&err)
	program()
	b.scope(func() { measure(b) })
	return ctx.Err()
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

// idle is how long to watch what sleeps.
func (b *bench) idle() time.Duration { return pick(b, *idleFlag, min(*idleFlag, 4*time.Second)) }

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
	case <-ctx.Done():
		check(ctx.Err())
	}
}

// helpers are the small programs that are watched or that we are measured
// beside: C, compiled again each time, and Python.
//
//go:embed helpers
var helpers embed.FS

// python is Debian's, which has its torch and psutil.
const python = "/usr/bin/python3"

// program compiles the helpers, and rsswarden as `make build` does, the first time, and
// returns the latter.
var program = sync.OnceValue(func() string {
	for _, e := range must(fs.ReadDir(helpers, "helpers")) {
		file := path(e.Name())
		check(os.WriteFile(file, must(helpers.ReadFile("helpers/"+e.Name())), 0o600))
		if name, isC := strings.CutSuffix(file, ".c"); isC {
			output(command("cc", "-O2", "-o", name, file))
		}
	}
	printHead(os.Stdout)
	if *programFlag != "" {
		return install(*programFlag)
	}
	return install(goBuild("cmd/rsswarden"))
})

// install copies a program in pieces of a page, so that its page cache has the small folios
// of a file that was read from disk. What the Go linker writes has folios of up to 2 MiB, and
// Linux 6.18 maps a folio whole at the first fault. It keeps the program's name, by which
// helpers know it.
func install(file string) string {
	program := must(os.ReadFile(file))
	check(os.MkdirAll(path("installed"), 0o700))
	file = filepath.Join(path("installed"), filepath.Base(file))
	f := must(os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700))
	for page := range slices.Chunk(program, os.Getpagesize()) {
		must(f.Write(page))
	}
	check(f.Close())
	return file
}

// goBuild builds one of our programs as `make build` does, and returns its file.
func goBuild(dir string) string {
	file := path(filepath.Base(dir))
	cmd := command("go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", file, "./"+dir)
	cmd.Dir = ".."
	output(cmd)
	return file
}

// command is one that ends with the bench.
func command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
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

func path(name string) string { return filepath.Join(workDir, name) }

// lacks says that Debian's Python cannot be used with these modules, which leaves a peer
// out.
func (b *bench) lacks(peer, modules string) bool {
	out, err := command(python, "-c", "import "+modules).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		b.skip("%s: %s with %s is not there: %v %s", peer, python, modules, err, lines[len(lines)-1])
	}
	return err != nil
}

// under puts us in front of a command, with these options.
func under(options ...string) wrapper {
	return func(command ...string) []string {
		return slices.Concat([]string{program(), "run"}, options, []string{"--"}, command)
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
	cmd := command(args...)
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

// A wrapper puts words in front of a command, as [under] does.
type wrapper func(command ...string) []string

// crowd starts n sleeping processes, the first of them the parent of all others, behind
// the words of wrap. Its PID is theirs, not the wrapper's.
func (b *bench) crowd(n int, wrap wrapper) (*child, int) {
	args := []string{path("crowd"), fmt.Sprint(n)}
	if wrap != nil {
		args = wrap(args...)
	}
	c := b.start(args...)
	return c, c.expect("ready")
}
