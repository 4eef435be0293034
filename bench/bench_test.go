// Package bench measures what rsswarden costs and how fast it is, beside its peers.
//
//	go test ./bench -run '^$' -bench 'Trees|Start' -benchtime 1x -timeout 0 | tee bench.txt
//	go tool benchstat -col /who bench.txt    # ours beside the peers', with the ratios
//	go tool benchstat OLD.txt NEW.txt
//
// A line of the output is one run. Ours and the peers take turns, a run each, so that all
// meet the same machine; what is watched for a minute is watched at the same time. What
// follows from the runs is in lines that begin with #, with its goal if it has one. A missed
// goal is no error: figures of one machine prove nothing on another. -short takes few and
// short runs, which only show that all works. A comment at each function says what it measures.
//
// What not to conclude: SumRSS, procfs with PIDs known and the C loop do less than psutil:
// they do not look for new processes. A full look lists /proc only where something was
// forked, so other work on the machine makes it more expensive. earlyoom reads two numbers of the
// whole machine. What grows in Bursts is mapped, not charged: it counts in RSS, in no
// cgroup. The poll of Bursts is the best of its kind, one read of one file. Ratios of added
// time, as in Start, are of small differences: below twenty runs they say nothing. A loaded
// machine makes all figures larger, and not by one factor.
package bench

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var (
	programFlag = flag.String("rsswarden", "", "measure this `FILE` rather than build the tree's own")
	idleFlag    = flag.Duration("idle", time.Minute, "how long to watch what sleeps")
	pairsFlag   = flag.Int("pairs", 10, "pairs of trainings; an interval worth its name needs 30")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == readerRole {
		os.Exit(beReader(os.Args[2:]))
	}
	flag.Parse()
	os.Exit(inDirectory(m.Run))
}

// The end of ctx ends what is being measured; workDir is for what is built and written.
var (
	ctx     context.Context
	workDir string
)

func inDirectory(run func() int) int {
	var stop func()
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var err error
	if workDir, err = os.MkdirTemp("", "rsswarden-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot make a directory:", err)
		return 1
	}
	defer os.RemoveAll(workDir)
	return run()
}

// TestQuick runs what takes seconds, and checks that all has been measured. How fast
// anything was is not tested here.
func TestQuick(t *testing.T) {
	if _, err := exec.LookPath("tini"); err != nil {
		t.Skip("tini is not there: ", err)
	}
	if out, err := exec.Command(python, "-c", "import psutil").CombinedOutput(); err != nil {
		t.Skipf("psutil is not there: %s", out)
	}
	var out bytes.Buffer
	rows := map[string]int{"Trees": 4, "Start": 2}
	for name, measure := range map[string]func(*bench){"Trees": measureTrees, "Start": measureStart} {
		if err := (&bench{name: "Benchmark" + name, quick: true, out: &out}).run(measure); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &out)
		}
	}
	runs := map[string]map[string]int{} // of each row, how many of each series
	r := benchfmt.NewReader(bytes.NewReader(out.Bytes()), "out")
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatal(r.Result())
		}
		if res.Values[0].Value <= 0 {
			t.Errorf("%s: %+v", res.Name, res)
		}
		row, who, _ := strings.Cut(string(res.Name), "/who=")
		if runs[row] == nil {
			runs[row] = map[string]int{}
		}
		runs[row][who]++
	}
	for row, series := range runs {
		name, _, _ := strings.Cut(row, "/")
		rows[name]--
		counts := slices.Collect(maps.Values(series))
		if slices.Min(counts) < 2 || slices.Min(counts) != slices.Max(counts) {
			t.Errorf("%s: runs %v", row, series)
		}
	}
	for name, left := range rows {
		if left != 0 {
			t.Errorf("%s: %d rows are missing", name, left)
		}
	}
	for _, not := range []string{"where SumRSS reads", "not measured"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the readers disagree, or one is missing:\n%s", &out)
		}
	}
	wardentest.Says(t, out.String(), "psutil to SumRSS", "added by us to added by tini")
	file := path("bench.txt")
	wardentest.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	if out, err := exec.Command("go", "tool", "benchstat", "-col", "/who", file).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("sec/op")) || !bytes.Contains(out, []byte("SumRSS")) {
		t.Errorf("benchstat: %v\n%s", err, out)
	}
}

func TestStatistics(t *testing.T) {
	near := func(what string, got, want, by float64) {
		t.Helper()
		if math.IsNaN(got) || math.Abs(got-want) > by {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("median of 4", quantile([]float64{4, 1, 3, 2}, 0.5), 2.5, 0)
	near("p95 of 20", quantile([]float64{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0.95), 19, 0)
	near("exponent of x²", exponent([]float64{1, 10, 100}, []float64{3, 300, 30000}), 2, 1e-9)
	// Tables of Student's t.
	for df, want := range map[float64]float64{1: 12.706, 4: 2.776, 5: 2.571, 9: 2.262, 29: 2.045, 1000: 1.962} {
		near("Student's t", student(df), want, want/100)
	}
	low, middle, high := interval([]float64{0.5, 2, 1, 1})
	near("the middle of 1/2 and 2", middle, 1, 1e-9)
	near("bounds are as far off", low*high, 1, 1e-9)
}

// BenchmarkTrees is one sum of RSS over a tree of 64 and of 1,000 sleeping processes, back to
// back (a run is the mean of a few) and after a pause of 200 ms (a run is one): SumRSS as in
// a fast look, Trees as in a full one, psutil as in the scripts that we replace,
// prometheus/procfs, and a C loop of preads, the least it can cost; each in a process of its
// own.
func BenchmarkTrees(b *testing.B) { run(b, measureTrees) }

// BenchmarkIdle is what holder and watcher take while 64 processes sleep, with the defaults
// and with a limit on summed RSS, beside earlyoom and a psutil loop.
func BenchmarkIdle(b *testing.B) { run(b, measureIdle) }

// BenchmarkStart is the time until a command runs, and from its end on: bare, under tini, under us.
func BenchmarkStart(b *testing.B) { run(b, measureStart) }

// BenchmarkBursts is by how much a burst has passed a rung when our decision is made, and
// when a poll each second sees it; attached to a process that has not grown yet.
func BenchmarkBursts(b *testing.B) { run(b, measureBursts) }

// BenchmarkTraining is what a PyTorch training loses, in pairs of a bare and a wrapped run.
func BenchmarkTraining(b *testing.B) { run(b, measureTraining) }

// BenchmarkTrim is how long ptrace stops a process while 1 GiB of its mapped file is given
// back, beside its own madvise, and what the process reads meanwhile.
func BenchmarkTrim(b *testing.B) { run(b, measureTrim) }

// BenchmarkRecord is the record: bytes a process and sample of a real run, a report of a full
// record, the list of 10,000 runs. What a sample takes in the watcher's loop and in its writer
// is in supervisor/record/store.
func BenchmarkRecord(b *testing.B) { run(b, measureRecord) }

// BenchmarkNode is the node's daemon: a look at 100, 300 and 1,000 jobs of ten processes in
// real cgroups, beside procfs; what rsswardend takes for 1,000 at 10 s, scraped and not, while
// all processes sleep, and while each takes or gives back 16 pages.
func BenchmarkNode(b *testing.B) { run(b, measureNode) }

func run(b *testing.B, measure func(*bench)) {
	if b.N > 1 {
		return // it was measured
	}
	wardentest.NoError(b, (&bench{name: b.Name(), quick: testing.Short(), out: os.Stdout}).run(measure))
}

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

// A row is one quantity, of ours and of its peers, measured in turns.
type row struct {
	name, unit string   // of all runs; smaller is better
	series     []series // ours first
	lines      []string // what follows from them, for people
}

// series is the runs of one program in the order in which they were made; run i of one
// series was made next to run i of the others.
type series struct {
	who  string
	runs []float64
}

func (s series) median() float64 { return quantile(s.runs, 0.5) }

// newRow begins a row; add prints it.
func newRow(name, unit string) *row { return &row{name: name, unit: unit} }

// add prints the runs of a row in the format of Go benchmarks, and what follows from them.
func (b *bench) add(r *row) {
	for _, s := range r.series {
		for _, v := range s.runs {
			fmt.Fprintf(b.out, "%s/%s/who=%s 1 %s\n", b.name, field(r.name), field(s.who), inBase(v, r.unit))
		}
	}
	for _, l := range r.lines {
		fmt.Fprintf(b.out, "# %s: %s\n", r.name, l)
	}
}

// skip says that a peer, or all, was not measured.
func (b *bench) skip(format string, args ...any) {
	fmt.Fprintf(b.out, "# not measured: %s\n", fmt.Sprintf(format, args...))
}

// put adds the runs of one program, ours first.
func (r *row) put(who string, runs []float64) {
	if len(runs) > 0 {
		r.series = append(r.series, series{who, runs})
	}
}

func (r *row) note(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// tell adds a number that has no goal.
func (r *row) tell(what string, value float64, unit string) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.note("%s: %s %s", what, figure(value), unit)
	}
}

func (r *row) atMost(what string, value, goal float64, unit string) {
	r.check(what, value, "≤", goal, unit, value <= goal)
}

func (r *row) atLeast(what string, value, goal float64, unit string) {
	r.check(what, value, "≥", goal, unit, value >= goal)
}

func (r *row) check(what string, value float64, op string, goal float64, unit string, met bool) {
	verdict := "met"
	switch {
	case math.IsNaN(value), math.IsInf(value, 0):
		verdict = "cannot be told from these runs"
	case !met:
		verdict = "MISSED"
	}
	r.note("%s: %s %s, goal %s %s: %s", what, figure(value), unit, op, figure(goal), verdict)
}

// of returns the series of that name, an empty one where there is none.
func (r *row) of(who string) series {
	for _, s := range r.series {
		if s.who == who {
			return s
		}
	}
	return series{}
}

func (r *row) median(who string) float64 { return r.of(who).median() }

// times is how many times as long one takes as another.
func (r *row) times(slow, fast string) float64 { return r.median(slow) / r.median(fast) }

// quantile returns the value below which a share q of the runs lie, one of the
// runs itself but for the median of an even number; NaN where there are none.
func quantile(runs []float64, q float64) float64 {
	if len(runs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(runs))
	if q == 0.5 {
		return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
	}
	return s[max(int(math.Ceil(q*float64(len(s))))-1, 0)]
}

func mean(runs []float64) float64 {
	sum := 0.0
	for _, v := range runs {
		sum += v
	}
	return sum / float64(len(runs))
}

// field is text as one word.
func field(text string) string { return strings.Join(strings.Fields(text), "_") }

// inBase is a time in the unit that benchstat scales by itself, and another value as it is.
func inBase(v float64, unit string) string {
	if ns, ok := map[string]float64{"s": 1e9, "ms": 1e6, "µs": 1e3}[unit]; ok {
		return fmt.Sprint(v*ns, " ns/op")
	}
	return fmt.Sprint(v, " ", field(unit))
}

// figure prints a number with three digits that count, and no exponent.
func figure(v float64) string {
	if math.Abs(v) >= 999.5 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// printHead says what is measured, and where.
func printHead(w io.Writer) {
	var name unix.Utsname
	var info unix.Sysinfo_t
	check(unix.Uname(&name))
	check(unix.Sysinfo(&info))
	version, err := exec.Command("git", "describe", "--tags", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		version = []byte("of unknown version")
	}
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &load)
	}
	fmt.Fprintf(w, "# rsswarden %s, %s\n", strings.TrimSpace(string(version)), time.Now().Format(time.RFC3339))
	fmt.Fprintf(w, "# %d CPUs, %.0f GiB, Linux %s, %s, load %.1f\n", runtime.NumCPU(), float64(info.Totalram*uint64(info.Unit))/(1<<30),
		unix.ByteSliceToString(name.Release[:]), runtime.Version(), load)
	if load > float64(runtime.NumCPU())/2 {
		fmt.Fprintln(w, "# the machine is busy: what follows shows that it works, not how fast it is")
	}
}
