package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The test binary is the holder when its first argument is "run", and the
// watcher when it is "watch"; probe is the command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "run":
			runHolder(os.Args[2], os.Args[3:])
		case "watch":
			runWatcher()
		case "aside":
			answerAsIOHelper()
		}
	}
	os.Exit(testMain(m))
}

var self, probe string

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hold")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if self, err = os.Executable(); err != nil {
		panic(err)
	}
	probe = filepath.Join(dir, "probe")
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if out, err := exec.Command(cc, "-Wall", "-Wextra", "-O1", "-o", probe, "testdata/probe.c").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("cannot compile probe: %v\n%s", err, out))
	}
	return m.Run()
}

// config is what a test asks of its holder and watcher.
type config struct {
	Watch     string        // the watcher's behaviour, "" for none
	Log       string        // file for the watcher's lines
	Flush     time.Duration // 0: default
	Keep      []int
	Subreaper bool
	Override  int
	NoPidfd   bool // as before Linux 5.3
	InPlace   bool // Exec instead of Run
	Trim      bool // the holder traces
}

func runHolder(arg string, argv []string) {
	var c config
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		panic(err)
	}
	o := Options{Paths: argv[:1], Args: argv, Env: Environ(), Setup: json.RawMessage(arg), Flush: c.Flush, KeepFDs: c.Keep,
		Log: func(s string) { fmt.Fprintln(os.Stderr, "holder:", s) }}
	if p, err := exec.LookPath(argv[0]); err == nil {
		o.Paths = []string{p}
	}
	if c.NoPidfd {
		pidfdOpen = func(int, int) (int, error) { return -1, unix.ENOSYS }
	}
	if c.Watch != "" {
		o.Watcher = []string{"/proc/self/exe", "watch"}
	}
	if c.Trim {
		o.Trim = tracer()
	}
	if c.InPlace {
		fmt.Fprintln(os.Stderr, "error:", Exec(o.Paths, o.Args))
		os.Exit(126)
	}
	st, err := Run(o)
	var start *StartError
	if errors.As(err, &start) {
		fmt.Fprintln(os.Stderr, "error:", err)
		if start.Errno == syscall.ENOENT {
			os.Exit(127)
		}
		os.Exit(126)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(125)
	}
	st.Die()
}

func runWatcher() {
	l, err := OpenLink()
	if err != nil {
		fmt.Fprintln(os.Stderr, "watcher:", err)
		os.Exit(1)
	}
	var c config
	if err := json.Unmarshal(l.Begin().Setup, &c); err != nil {
		panic(err)
	}
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	say := func(f string, a ...any) { fmt.Fprintf(log, f+"\n", a...) }
	b := l.Begin()
	if c.Subreaper {
		l.Subreaper(true)
	}
	if c.Override != 0 {
		l.Override(c.Override)
	}
	say("begin %d attempt %d last %v command %d start %d", os.Getpid(), b.Attempt, b.Last, b.PID, b.Start)
	switch c.Watch {
	case "kill":
		unix.Kill(os.Getpid(), unix.SIGKILL)
	case "stop":
		unix.Kill(os.Getpid(), unix.SIGSTOP)
	case "panic":
		panic("the watcher's own fault")
	case "bus":
		f, err := os.CreateTemp("", "bus")
		if err != nil {
			panic(err)
		}
		os.Remove(f.Name())
		p, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			panic(err)
		}
		say("read %d", p[0])
	case "leave":
		os.Exit(0)
	}
	answers := make(chan TrimAnswer, 1)
	if c.Watch == "trim" {
		go trimAll(l, answers, say)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	for {
		select {
		case m := <-l.Messages():
			switch m := m.(type) {
			case Signal:
				say("signal %d forwarded %v", m.Signal, m.Forwarded)
			case TrimAnswer:
				answers <- m
			case Exit:
				say("exit code %d signal %d", m.Code, m.Signal)
				if c.Watch == "hang" {
					time.Sleep(time.Hour)
				}
				l.Close()
				os.Exit(0)
			case Gone:
				say("gone")
				os.Exit(0)
			}
		case <-tick.C:
			if err := l.Unstick(); err != nil {
				say("unstick: %v", err)
			}
		}
	}
}

// held is a command line under a holder.
func held(c config, argv ...string) []string {
	j, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return append([]string{self, "run", string(j)}, argv...)
}

func run(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Dir = t.TempDir()
	return cmd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func runStatus(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	must(t, cmd.Start())
	return waitStatus(t, cmd)
}

func waitStatus(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// until polls for a condition, with a deadline for the hopeless.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// awaitLine returns the first line of the file with the prefix.
func awaitLine(t *testing.T, path, prefix string) (line string) {
	t.Helper()
	until(t, prefix+" in "+filepath.Base(path), func() bool {
		for l := range strings.Lines(wardentest.Read(path)) {
			if strings.HasPrefix(l, prefix) && strings.HasSuffix(l, "\n") {
				line = strings.TrimSpace(l)
				return true
			}
		}
		return false
	})
	return line
}
