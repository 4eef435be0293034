package loader

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

type stand = torchtest.Stand

const python = torchtest.Python

var (
	torch113, torch26, newest, stands = torchtest.Torch113, torchtest.Torch26, torchtest.Newest, torchtest.Stands

	cleanEnv = torchtest.CleanEnv
)

func write(t testing.TB, path, text string) {
	t.Helper()
	wardentest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// prepare is Prepare for a test.
func prepare(t testing.TB, env []string) Prepared {
	t.Helper()
	p, err := Prepare(Options{Env: env})
	wardentest.NoError(t, err)
	t.Cleanup(func() { Remove(p.Dir) })
	return p
}

// hooked returns the environment of a Python under the hook, which needs no torch.
func hooked(t testing.TB, extra ...string) (env []string, hookDir string) {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no Python: %v", err)
	}
	p := prepare(t, append(atHome(t, os.Environ()), extra...))
	return p.Env, p.Hook
}

// script is the path of a program in testdata.
func script(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("testdata/" + name)
	wardentest.NoError(t, err)
	return path
}

// inHook runs testdata/NAME, which has the modules of the hook without torch, see
// testdata/hookonly.py.
func inHook(t testing.TB, name string, args ...string) string {
	t.Helper()
	return inHookOf(t, nil, name, args...)
}

// inHookOf does that with the Python of a stand.
func inHookOf(t testing.TB, s *stand, name string, args ...string) string {
	t.Helper()
	_, dir := hooked(t)
	args = append([]string{"-B", script(t, name), dir}, args...)
	if s == nil {
		return torchtest.Run(t, nil, args...)
	}
	return s.Run(t, nil, args...)
}

var trials sync.Map // *trialOnce by *stand

type trialOnce struct {
	sync.Mutex
	done bool
	key  string // of a torch that is not known and was tried
}

// tried has the torch of a stand tried once, where its text is not in known.py, and hands
// the verdict to the run that has dir: Debian sid may have a newer one today.
func tried(t testing.TB, s *stand, dir string) {
	t.Helper()
	kept, _ := trials.LoadOrStore(s, new(trialOnce))
	trial := kept.(*trialOnce)
	trial.Lock()
	defer trial.Unlock()
	if !trial.done {
		env, _ := hooked(t)
		if inHookOf(t, s, "fingerprint.py", "ships") != "True\n" {
			u := untried(t, s, env, "")
			v, err := Try(t.Context(), u, env, startOn(t, s))
			t.Logf("torch %s is not known, its trial: %+v, %v", u.Torch, v, err)
			if v.OK() {
				trial.key = u.Key
			}
		}
		trial.done = true
	}
	if trial.key != "" {
		write(t, filepath.Join(dir, verdictPrefix+trial.key), "ok\n")
	}
}

const recordSize = 32 << 10

// records is how many the file of dataFile has: 128 MiB of them.
const records = 4096

var sharedData struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	SiteVerdicts = ""
	code := m.Run()
	os.RemoveAll(sharedData.dir)
	os.Exit(code)
}

// dataFile returns the file of records that testdata/trainer.py reads.
func dataFile(t testing.TB) string {
	t.Helper()
	sharedData.once.Do(func() {
		sharedData.dir, sharedData.err = os.MkdirTemp("", "loader-test")
		if sharedData.err == nil {
			sharedData.err = makeData(filepath.Join(sharedData.dir, "records"))
		}
	})
	if sharedData.err != nil {
		t.Fatal(sharedData.err)
	}
	return filepath.Join(sharedData.dir, "records")
}

func makeData(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	rec := make([]byte, recordSize)
	var sums []byte
	for i := range records {
		binary.LittleEndian.PutUint64(rec, uint64(i))
		x := uint32(i)*2654435761 + 1
		for j := 8; j < len(rec); j++ {
			x = x*1664525 + 1013904223
			rec[j] = byte(x >> 24)
		}
		w.Write(rec)
		sum := uint64(0)
		for _, b := range rec {
			sum += uint64(b)
		}
		sums = binary.LittleEndian.AppendUint64(sums, sum)
	}
	return errors.Join(w.Flush(), f.Close(), os.WriteFile(path+".sums", sums, 0o600))
}

// result is the last line of testdata/trainer.py.
type result struct {
	What     string    `json:"what"`
	Checksum string    `json:"checksum"`
	Main     string    `json:"main"`
	Draws    string    `json:"draws"`
	Wrong    int       `json:"wrong"`
	Errors   int       `json:"errors"`
	Epochs   int       `json:"epochs"`
	Batches  int       `json:"batches"`
	Saved    int       `json:"saved"` // checkpoints that were resumed
	Repeated int       `json:"repeated"`
	Held     bool      `json:"held"` // an iterator, by nothing but a cycle
	Workers  int       `json:"workers"`
	Mapped   uint64    `json:"mapped"` // most that a record found mapped
	Late     uint64    `json:"late"`   // the same, from the second epoch on
	FDs      [2]int    `json:"fds"`
	Sems     [4]int    `json:"semaphores"` // mapped after the first round and the last, seen, and left at the end
	Waits    []float64 `json:"waits"`
}

// training is a run of testdata/trainer.py under the hook.
type training struct {
	t    testing.TB
	pid  int
	dir  string
	stop string // a file that ends a run with --until
	ctl  *Control
	said []Said

	stderr bytes.Buffer
	done   chan struct{}
	mu     sync.Mutex
	out    result
	epochs int
	err    error
}

type trainOptions struct {
	on     *stand // torch113 where it is nil
	python string // one without torch, in place of a stand's
	script string // of testdata, in place of trainer.py
	args   string
	env    []string
	ends   bool                    // by itself, not on request
	bare   bool                    // without the hook
	forks  bool                    // --loader all
	hook   func(dir string) string // gives another directory in place of the hook
	before func(*Control) error    // is called before it starts
}

// train starts a training. Without a hook it has no Control.
func train(t testing.TB, o trainOptions) *training {
	t.Helper()
	on := cmp.Or(o.on, torch113)
	if o.python == "" {
		on.Need(t)
	}
	tmp := t.TempDir()
	tr := &training{t: t, done: make(chan struct{}), stop: filepath.Join(tmp, "stop")}
	env := append(os.Environ(), "STARTED="+filepath.Join(tmp, "started"), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	env = append(env, o.env...)
	if !o.bare {
		p := prepare(t, atHome(t, env))
		env, tr.dir = p.Env, p.Dir
		if o.python == "" {
			tried(t, on, p.Dir)
		}
		var err error
		tr.ctl, err = Open(p.Dir)
		wardentest.NoError(t, err)
		wardentest.NoError(t, tr.ctl.SetForAll(0, o.forks))
		t.Cleanup(tr.ctl.Close)
		if o.before != nil {
			wardentest.NoError(t, o.before(tr.ctl))
		}
		if o.hook != nil {
			env = setEnv(env, "PYTHONPATH", o.hook(p.Hook))
		}
	}
	args := []string{script(t, cmp.Or(o.script, "trainer.py")), "--data", dataFile(t), "--size", fmt.Sprint(recordSize)}
	args = append(args, strings.Fields(o.args)...)
	if !o.ends {
		args = append(args, "--until", tr.stop)
	}
	stdout, wait := tr.start(o, on, env, args)
	go func() {
		defer close(tr.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var r result
			if json.Unmarshal(lines.Bytes(), &r) != nil {
				continue
			}
			tr.mu.Lock()
			switch r.What {
			case "epoch":
				tr.epochs++
			case "result":
				tr.out = r
			}
			tr.mu.Unlock()
		}
		tr.err = wait()
	}()
	t.Cleanup(func() {
		syscall.Kill(-tr.pid, syscall.SIGKILL)
		<-tr.done
	})
	return tr
}

// start starts the program as a user does where no torch is to be imported, another one
// than the stand's or, with RSSWARDEN_ENDURANCE, in any case. Else it spares the import.
func (tr *training) start(o trainOptions, on *stand, env, args []string) (stdout io.ReadCloser, wait func() error) {
	tr.t.Helper()
	otherTorch := slices.ContainsFunc(o.env, func(v string) bool { return strings.HasPrefix(v, "PYTHONPATH=") })
	// gevent and eventlet have to come before torch; Python ends a script otherwise than a module.
	early := o.script == "pools.py" || strings.HasPrefix(o.args, "--patched") || strings.HasPrefix(o.args, "--case ends")
	if o.python != "" || early || otherTorch || wardentest.Few(1, 0) == 1 {
		cmd := on.Command(tr.t, cmp.Or(o.python, python), args...)
		cmd.Env, cmd.Stderr, cmd.SysProcAttr = env, &tr.stderr, &syscall.SysProcAttr{Setpgid: true}
		stdout, err := cmd.StdoutPipe()
		wardentest.NoError(tr.t, errors.Join(err, cmd.Start()))
		tr.pid = cmd.Process.Pid
		return stdout, cmd.Wait
	}
	stdout, out, err1 := os.Pipe()
	stderr, errs, err2 := os.Pipe()
	wardentest.NoError(tr.t, errors.Join(err1, err2))
	pid, end := on.Start(tr.t, env, out, errs, args...)
	tr.pid = pid
	wardentest.NoError(tr.t, errors.Join(out.Close(), errs.Close()))
	copied := make(chan error, 1)
	go func() {
		_, err := tr.stderr.ReadFrom(stderr)
		copied <- err
	}()
	return stdout, func() error {
		err := <-copied
		if status := <-end; status != 0 {
			err = errors.Join(err, fmt.Errorf("wait status %#x", status))
		}
		return errors.Join(err, stdout.Close(), stderr.Close())
	}
}

// atHome returns env with temporary places for the hook and the run directory.
func atHome(t testing.TB, env []string) []string {
	env = setEnv(env, "HOME", t.TempDir())
	return setEnv(setEnv(env, "XDG_CACHE_HOME", ""), EnvRuntime, t.TempDir())
}

// poll reads new reports and keeps them.
func (tr *training) poll() []Said {
	said := tr.ctl.Poll(true)
	tr.said = append(tr.said, said...)
	return said
}

// until polls until cond holds, or the training ends, or it takes too long.
func (tr *training) until(what string, cond func() bool) {
	tr.t.Helper()
	deadline := time.Now().Add(rsstest.Patience)
	for {
		tr.poll()
		if cond() {
			return
		}
		select {
		case <-tr.done:
			tr.poll()
			if cond() {
				return
			}
			tr.t.Fatalf("training ended before %s: %v\n%s\nsaid: %+v", what, tr.err, tr.stderr.String(), tr.said)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			tr.t.Fatalf("no %s in time\n%s\nsaid: %+v", what, tr.stderr.String(), tr.said)
		}
	}
}

// finish ends the training and returns its result.
func (tr *training) finish() result {
	tr.t.Helper()
	wardentest.NoError(tr.t, os.WriteFile(tr.stop, nil, 0o600))
	deadline := time.After(rsstest.Patience)
	for wait := true; wait; {
		select {
		case <-tr.done:
			wait = false
		case <-deadline:
			tr.t.Fatalf("training hangs\n%s\nsaid: %+v", tr.stderr.String(), tr.said)
		case <-time.After(5 * time.Millisecond):
		}
		if tr.ctl != nil {
			tr.poll()
		}
	}
	if tr.err != nil {
		tr.t.Fatalf("training failed: %v\n%s\nsaid: %+v", tr.err, tr.stderr.String(), tr.said)
	}
	return tr.out
}

// workers lists the workers in place now.
func (tr *training) workers() []int {
	var pids []int
	for _, t := range tr.ctl.Trainers() {
		for _, l := range t.Loaders {
			pids = append(pids, l.Workers...)
		}
	}
	return pids
}

// have waits until there are so many workers.
func (tr *training) have(n int) []int {
	tr.t.Helper()
	tr.until("workers", func() bool { return len(tr.workers()) == n })
	return tr.workers()
}

// last returns the final answer to a request, if it has come.
func (tr *training) last(id uint64) (Said, bool) {
	for _, s := range tr.said {
		if s.Request == id && s.Last {
			return s, true
		}
	}
	return Said{}, false
}

// ask asks for a worker and returns the final answer.
func (tr *training) ask(worker int, mode event.Mode) Said {
	tr.t.Helper()
	id, err := tr.ctl.Recycle(worker, mode)
	wardentest.NoError(tr.t, err)
	return tr.answer(id)
}

// answer waits for the final answer to a request.
func (tr *training) answer(id uint64) (said Said) {
	tr.t.Helper()
	tr.until("an answer", func() (ok bool) { said, ok = tr.last(id); return ok })
	return said
}

// some waits until there are workers.
func (tr *training) some() []int {
	tr.t.Helper()
	tr.until("workers", func() bool { return len(tr.workers()) > 0 })
	return tr.workers()
}

// heard are the reports of a kind about a request, about any where id is 0.
func (tr *training) heard(what event.Loader, id uint64) (all []Said) {
	for _, s := range tr.said {
		if s.What == what && (id == 0 || s.Request == id) {
			all = append(all, s)
		}
	}
	return all
}

// passing are reasons for which a worker cannot be replaced at this moment.
var passing = []string{"loader ended", "no such worker", "process has ended", "worker is at the end of its data"}

// recycle asks for the worker in turn n until count were recycled.
func (tr *training) recycle(count int, mode event.Mode) (recycled []Said) {
	tr.t.Helper()
	for n := 0; len(recycled) < count; n++ {
		pids := tr.some()
		switch s := tr.ask(pids[n%len(pids)], mode); {
		case s.What == event.LoaderRecycled:
			recycled = append(recycled, s)
		case !slices.Contains(passing, s.Reason):
			tr.t.Fatalf("refused: %+v", s)
		}
	}
	return recycled
}

// seen returns how many epochs the training has finished.
func (tr *training) seen() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.epochs
}

func (tr *training) moreEpochs(n int) {
	tr.t.Helper()
	seen := tr.seen()
	tr.until("more epochs", func() bool { return tr.seen() >= seen+n })
}

// right ends the training: its data were right.
func (tr *training) right() {
	tr.t.Helper()
	if r := tr.finish(); r.Wrong != 0 {
		tr.t.Errorf("%+v", r)
	}
}

// like ends the training: it had the data of the one without us.
func (tr *training) like(bare result) result {
	tr.t.Helper()
	got := tr.finish()
	if got.Wrong != 0 || got.Checksum != bare.Checksum {
		tr.t.Errorf("got %+v, bare %+v", got, bare)
	}
	return got
}

// quiet checks that the training printed no error.
func (tr *training) quiet() {
	tr.t.Helper()
	if text := unlinkedBefore(tr.stderr.String()); text != "" {
		tr.t.Errorf("stderr: %s", text)
	}
}

func (tr *training) notOff() {
	tr.t.Helper()
	if off := tr.heard(event.LoaderOff, 0); len(off) > 0 {
		tr.t.Errorf("hook is off: %+v", off)
	}
}

// bareRuns are results of trainings without us, each run once for all tests that ask for
// it, and again where the test that ran it ended meanwhile.
var bareRuns sync.Map

type bareRun struct {
	sync.Mutex
	done   bool
	result result
}

func bareOnce(t *testing.T, o trainOptions) result {
	t.Helper()
	kept, _ := bareRuns.LoadOrStore(fmt.Sprintf("%s %s %q", o.on.Name, o.script, o.args), new(bareRun))
	run := kept.(*bareRun)
	run.Lock()
	defer run.Unlock()
	if !run.done {
		o.bare, o.ends = true, true
		run.result = train(t, o).finish()
		run.done = true
	}
	return run.result
}

func bareOn(t *testing.T, s *stand, args string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: s, args: args})
}
