package hold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	if _, set := os.LookupEnv("RSSWARDEN_PARK"); !set {
		os.Setenv("RSSWARDEN_PARK", "wait") // C would take a config for the command
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
	if Woken() {
		Resume(o).Die()
	}
	if Forked() && (c.Watch == "" || c.NoPidfd) {
		Leave()
	}
	if c.InPlace {
		fmt.Fprintln(os.Stderr, "error:", Exec(o.Paths, o.Args))
		os.Exit(126)
	}
	if Forked() {
		if l := Start(o); l != nil {
			serveLink(l)
		}
		Leave()
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
	serveLink(l)
}

// serveLink is the watcher's work.
func serveLink(l *Link) {
	var c config
	setup := l.Begin().Setup
	if Forked() {
		setup = json.RawMessage(os.Args[2])
	}
	if err := json.Unmarshal(setup, &c); err != nil {
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
	if c.Watch == "starts" {
		go startPrograms(l)
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
				if c.Watch == "linger" {
					time.Sleep(4 * time.Second)
				}
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

// startPrograms starts one after the other.
func startPrograms(l *Link) {
	for {
		cmd := exec.Command("/bin/true")
		if l.Start(cmd) == nil {
			cmd.Wait()
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

func runStatus(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	wardentest.NoError(t, cmd.Start())
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
	for end := time.Now().Add(rsstest.Patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
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

func each(t *testing.T, n int, f func(int)) {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func TestExitStatus(t *testing.T) {
	each(t, 256, func(i int) {
		cmd := run(t, held(config{}, probe, "exit", strconv.Itoa(i))...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		if s := waitStatus(t, cmd); !s.Exited() || s.ExitStatus() != i {
			t.Errorf("exit %d: got %v", i, s)
		}
	})
}

func TestDeathBySignal(t *testing.T) {
	each(t, 64, func(i int) {
		sig := i + 1
		switch sig {
		case 17, 18, 19, 20, 21, 22, 23, 28:
			return // these do not kill
		}
		cmd := run(t, held(config{}, probe, "die", strconv.Itoa(sig))...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		if s := waitStatus(t, cmd); !s.Signaled() || int(s.Signal()) != sig || s.CoreDump() {
			t.Errorf("signal %d: got %v, core %v", sig, s, s.CoreDump())
		}
	})
}

// The watcher has the descriptors it was promised, stderr, its link and
// nothing else of the user.
func TestWatcherDescriptors(t *testing.T) {
	var files []*os.File
	for range 5 {
		r, w, err := os.Pipe()
		wardentest.NoError(t, err)
		defer r.Close()
		defer w.Close()
		files = append(files, w)
	}
	k := startCounted(t, config{Watch: "good", Keep: []int{6, 4}}, func(cmd *exec.Cmd) { cmd.ExtraFiles = files })
	target := func(pid, fd int) string {
		s, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		return s
	}
	for fd := 3; fd <= 7; fd++ {
		of := target(k.command, fd)
		if !strings.HasPrefix(of, "pipe:") {
			t.Errorf("the command's descriptor %d is %q", fd, of)
		}
		has := target(k.watcher, fd) == of
		if kept := fd == 4 || fd == 6; has != kept {
			t.Errorf("the watcher's descriptor %d is %q, kept: %v", fd, target(k.watcher, fd), kept)
		}
		if fd != 4 && fd != 6 && target(k.holder, fd) == of {
			t.Errorf("the holder holds descriptor %d", fd)
		}
	}
	for fd := range 2 {
		if s := target(k.watcher, fd); s != os.DevNull {
			t.Errorf("the watcher's descriptor %d is %q", fd, s)
		}
	}
	if a, b := target(k.watcher, 2), target(k.command, 2); a != b {
		t.Errorf("the watcher's stderr is %q, not %q", a, b)
	}
	k.end(t)
}

// differences are the items of docs/promises.md that the probe shows, with the fields in
// which it does. Nothing else that it shows may differ.
var differences = map[string][]string{
	"Its PID is not the one that its parent started": {"pid", "ppid", "PPid"},
	"It leads neither a process group nor a session": {"pgid", "sid", "fgpgid", "NSpgid", "NSsid"},
	"SigQ in /proc/PID/status counts":                {"SigQ"},
	"The shell's variable _ names what":              {"env _="},
}

func TestDifferences(t *testing.T) {
	_, list, _ := strings.Cut(wardentest.Read("../../docs/promises.md"), "# What tells a held command from a bare one\n")
	for text := range differences {
		if !strings.Contains(list, "\n- "+text) {
			t.Errorf("docs/promises.md does not say %q", text)
		}
	}
}

// twin runs the probe bare and held under the same conditions.
func twin(t *testing.T, c config, prepare func(argv []string) *exec.Cmd) (bare, wrapped []string) {
	t.Helper()
	dir := t.TempDir()
	show := func(name string, wrap bool) []string {
		file := filepath.Join(dir, "twin")
		argv := []string{probe, "twin", file}
		if wrap {
			c.Log = filepath.Join(dir, "log")
			argv = held(c, argv...)
		}
		cmd := prepare(argv)
		cmd.Dir = dir
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := slices.Collect(strings.Lines(wardentest.Read(file)))
		if len(lines) < 60 {
			t.Fatalf("%s: only %d lines", name, len(lines))
		}
		os.Remove(file)
		return lines
	}
	return show("bare", false), show("wrapped", true)
}

var pipeNumber = regexp.MustCompile(`(pipe|socket):\[\d+\]`)

func normal(lines []string) (out []string) {
	for _, l := range lines {
		if mayDiffer(l) {
			continue
		}
		out = append(out, pipeNumber.ReplaceAllString(l, "$1"))
	}
	return out
}

// mayDiffer says that a line of the probe's shows one of the differences.
func mayDiffer(line string) bool {
	for _, fields := range differences {
		if slices.ContainsFunc(fields, func(f string) bool {
			return strings.HasPrefix(line, f+" ") || strings.HasPrefix(line, f+":") || strings.HasSuffix(f, "=") && strings.HasPrefix(line, f)
		}) {
			return true
		}
	}
	return false
}

func TestTwin(t *testing.T) {
	given := func(what ...string) func([]string) *exec.Cmd {
		return func(argv []string) *exec.Cmd {
			argv = append(append(append([]string{"given"}, what...), "--"), argv...)
			return exec.Command(probe, argv...)
		}
	}
	shell := func(script string) func([]string) *exec.Cmd {
		return func(argv []string) *exec.Cmd {
			return exec.Command("sh", append([]string{"-c", script, "sh"}, argv...)...)
		}
	}
	type twinTest struct {
		name    string
		prepare func([]string) *exec.Cmd
	}
	const inPlace = "executed in our place"
	tests := []twinTest{
		{"plain", given()},
		{inPlace, given("i=1", "i=17", "b=2", "b=33", "c=0", "r=1000", "o=7", "d=10")},
		{"stdin closed", given("c=0")},
		{"stdout closed", given("c=1")},
		{"stderr closed", given("c=2")},
		{"all closed", given("c=0", "c=1", "c=2")},
		{"nohup", shell(`exec nohup "$@" 2>/dev/null`)},
		{"background", shell(`trap '' INT QUIT; "$@" </dev/null & wait $!`)},
		{"SIGCHLD ignored", given("i=17")},
		{"much ignored", given("i=1", "i=2", "i=13", "i=15", "i=20", "i=32", "i=34", "i=64")},
		{"much blocked", given("b=1", "b=2", "b=10", "b=15", "b=17", "b=20", "b=32", "b=33", "b=34", "b=64")},
		{"descriptors 3 to 9", given("o=3", "o=4", "f=5", "o=6", "f=7", "f=8", "o=9")},
		{"a high descriptor", given("o=800", "f=700")},
		{"soft RLIMIT_NOFILE", given("r=1000")},
		{"umask, nice, slack", given("u=31", "n=3", "s=123456")},
		{"parent death signal", given("d=15")},
		{"one CPU", shell(`exec taskset -c 1 "$@"`)},
		{"oom_score_adj", shell(`echo 321 >/proc/self/oom_score_adj; exec "$@"`)},
		{"limits", shell(`ulimit -c 0 -s 4096 -u 5000; exec "$@"`)},
		{"Go's variables", shell(`export GODEBUG=gctrace=1 GOGC=off GOMAXPROCS=x GOMEMLIMIT=lots GOTRACEBACK=crash; exec "$@"`)},
		{"session of its own", func(argv []string) *exec.Cmd {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			return cmd
		}},
		{"reader of stderr gone", func(argv []string) *exec.Cmd {
			cmd := exec.Command(argv[0], argv[1:]...)
			r, w, err := os.Pipe()
			wardentest.NoError(t, err)
			r.Close()
			t.Cleanup(func() { w.Close() })
			cmd.Stderr = w
			return cmd
		}},
	}
	if !wardentest.Race() { // which maps more than any sensible RLIMIT_AS: make test runs this package without it too
		tests = append(tests, twinTest{"little address space", shell(`ulimit -v 2000000; exec "$@"`)})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := config{Watch: "good"}
			if test.name == inPlace {
				c = config{InPlace: true}
			}
			bare, wrapped := twin(t, c, test.prepare)
			compare(t, normal(bare), normal(wrapped))
		})
	}
}

func compare(t *testing.T, b, w []string) {
	t.Helper()
	for i := range max(len(b), len(w)) {
		switch {
		case i >= len(b):
			t.Errorf("only wrapped: %s", w[i])
		case i >= len(w):
			t.Errorf("only bare: %s", b[i])
		case b[i] != w[i] && !envOfRun(b[i], w[i]):
			t.Errorf("bare    %swrapped %s", b[i], w[i])
		}
	}
}

// envOfRun: the shell sets _ to what it runs.
func envOfRun(a, b string) bool {
	return strings.HasPrefix(a, "env _=") && strings.HasPrefix(b, "env _=")
}

// In the same process group and session as its holder.
func TestSameGroupAndSession(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	for _, pid := range []int{k.command, k.watcher} {
		group, err := syscall.Getpgid(pid)
		if err != nil || group != k.holder {
			t.Errorf("group of %d: %d, %v, want %d", pid, group, err, k.holder)
		}
	}
	k.end(t)
}

// answerAsIOHelper answers with what it is asked, unless that is how it is to fail.
func answerAsIOHelper() {
	if len(os.Args) > 2 {
		time.Sleep(200 * time.Millisecond) // as on a busy node
	}
	ask, err := Asked()
	switch {
	case err != nil:
		os.Exit(1)
	case string(ask) == "die":
		os.Exit(0)
	case string(ask) == "hang":
		time.Sleep(time.Hour)
	}
	if Answer(ask) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// TestIOHelper: what is asked and answered may be longer than a socket holds, and the process
// may take long to start; one that dies or says nothing is an error, in time. Neither a
// descriptor nor a process is left.
func TestIOHelper(t *testing.T) {
	descriptors := func() int {
		fds, err := filepath.Glob("/proc/self/fd/*")
		wardentest.NoError(t, err)
		return len(fds)
	}
	argv := []string{"/proc/self/exe", "aside"}
	before := descriptors()
	long := bytes.Repeat([]byte("long "), 1<<18)
	if got, err := RunIOHelper(argv, long, time.Minute, time.Minute); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
	if got, err := RunIOHelper(append(argv, "late"), []byte("late"), time.Minute, 100*time.Millisecond); err != nil || string(got) != "late" {
		t.Errorf("of one that starts late %q, %v", got, err)
	}
	if got, err := RunIOHelper(argv, []byte("die"), time.Minute, time.Minute); err != errEnded {
		t.Errorf("of one that dies %q, %v", got, err)
	}
	var left *UnansweredError
	if got, err := RunIOHelper(argv, []byte("hang"), time.Minute, 100*time.Millisecond); !errors.As(err, &left) || left.PID != 0 || !left.Asked {
		t.Errorf("of one that hangs %q, %v", got, err)
	}
	if got, err := RunIOHelper([]string{"/none", "aside"}, nil, time.Minute, time.Minute); err != unix.ENOENT {
		t.Errorf("of none %q, %v", got, err)
	}
	if n := descriptors() - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
	if pid, _, _, ok := takeOther(0); ok {
		t.Errorf("process %d is left", pid)
	}
}

// TestMessagesKeepTheEnd: a watcher that takes nothing for a while loses signals, and
// neither what came of a trim nor the end. The order is the holder's.
func TestMessagesKeepTheEnd(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	wardentest.NoError(t, err)
	defer unix.Close(pair[1])
	holder, l := &Link{fd: pair[0]}, &Link{fd: pair[1], messages: make(chan Message, messageRoom)}
	says := func(m message) {
		t.Helper()
		wardentest.NoError(t, holder.send(&m))
		if _, ok := l.receive(make([]byte, 4096)); !ok {
			t.Fatal("the holder is gone")
		}
	}
	for i := range signalRoom + 10 {
		says(message{kind: kindSignal, a: int32(i)})
	}
	answer := TrimAnswer{ID: 7}
	for range 3 {
		says(answer.message())
	}
	for range 2 {
		says(message{kind: kindExit, a: 3})
	}
	unix.Close(pair[0])
	go l.serve()
	for i := range signalRoom {
		if m := <-l.messages; m != (Signal{Signal: i}) {
			t.Fatalf("message %d is %#v", i, m)
		}
	}
	for _, want := range []Message{answer, Exit{Code: 3}, Gone{}} {
		if m := <-l.messages; m != want {
			t.Errorf("%#v, want %#v", m, want)
		}
	}
	if len(l.messages) > 0 {
		t.Errorf("and then %#v", <-l.messages)
	}
}

func TestMessages(t *testing.T) {
	want := message{kind: kindDrain, a: -1, b: 2, c: 3, set: bit(64)}
	var b [messageSize]byte
	want.put(&b)
	if got, err := parseMessage(b[:]); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	begin := Begin{Setup: json.RawMessage(`{"a":1}`), PID: 2, Start: 3, Holder: 4, Attempt: 4, Last: true, Blocked: 1 << 63}
	p, err := encodeBegin(begin)
	wardentest.NoError(t, err)
	got, err := parseBegin(p)
	wardentest.NoError(t, err)
	if d := cmp.Diff(begin, got); d != "" {
		t.Error(d)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(make([]byte, messageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseMessage(b)
		parseBegin(b)
	})
}

func TestParseStat(t *testing.T) {
	rest := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, test := range []struct {
		in   string
		want stat
		ok   bool
	}{
		{"12 (sh)" + rest, stat{'S', 4711, false}, true},
		{"12 (a) R (b)" + rest, stat{'S', 4711, false}, true},
		{"12 (sh)" + strings.Replace(rest, " 5 ", " 2 ", 1), stat{'S', 4711, true}, true},
		{"12 (sh) S 1 2", stat{}, false},
		{"12 sh S", stat{}, false},
		{"", stat{}, false},
	} {
		got, err := parseStat([]byte(test.in))
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%q: got %+v, %v", test.in, got, err)
		}
	}
}

func TestParsePending(t *testing.T) {
	status := "Name:\tx\nState:\tS (sleeping)\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000200\nSigBlk:\t0\n"
	state, p, ok := parsePending([]byte(status))
	if !ok || state != 'S' || p != bit(10) {
		t.Errorf("got %c %x %v", state, p, ok)
	}
	for _, bad := range []string{"", "Name:\tx\nState:\tS\n", "Name:\tx\nState:\tS\nShdPnd:\t02\n", "Name:\tx\nState:\tS\nShdPnd:\t000000000000020g\n", "Name:\tx\nState:\tS\nShdPnd:\t0000000000000200"} {
		if _, _, ok := parsePending([]byte(bad)); ok {
			t.Errorf("%q accepted", bad)
		}
	}
}

// What runs in the holder on a signal allocates nothing.
func TestNoAllocation(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	wardentest.NoError(t, err)
	w := &witness{status: -1}
	w.open(os.Getpid())
	defer w.close()
	var b [messageSize]byte
	n := testing.AllocsPerRun(100, func() {
		parsePending(status)
		w.see(10, 0)
		m := message{kind: kindSignal}
		m.put(&b)
		parseMessage(b[:])
		takeOther(0)
		stoppedBy(1)
		judge(&arrival{signo: 10}, &circumstances{})
		parentOf(os.Getpid())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b) })
}

func FuzzParsePending(f *testing.F) {
	f.Add([]byte("Name:\tx\nState:\tS (sleeping)\nShdPnd:\t0000000000000200\nSigBlk:\t0\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parsePending(b) })
}
