package loader

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// python is the interpreter of this machine whose torch the hook is claimed for.
const python = "/usr/bin/python3"

// stand is a place with a torch. What package loader says was run was run on
// each of them.
type stand struct {
	name    string                                                     // of subtests
	torch   string                                                     // the version's beginning; empty for any
	modules string                                                     // what else must be there
	command func(tb testing.TB, name string, args ...string) *exec.Cmd // or skips
	once    sync.Once
	why     string // it cannot be used
	trial   sync.Once
	key     string // of a torch that is not known and was tried
}

// newest is the newest torch that Debian has: 2.14.1 on Python 3.14 when this was written.
var (
	torch113 = &stand{name: "torch1.13", torch: "1.13.", modules: "numpy, lmdb",
		command: func(_ testing.TB, name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }}
	torch26 = &stand{name: "torch2.6", torch: "2.6.", modules: "numpy, lmdb, h5py",
		command: func(tb testing.TB, name string, args ...string) *exec.Cmd {
			return debian.Need(tb, debian.Trixie).Command(name, args...)
		}}
	newest = &stand{name: "torch of sid", modules: "numpy, lmdb, h5py",
		command: func(tb testing.TB, name string, args ...string) *exec.Cmd {
			return debian.Need(tb, debian.Sid).Command(name, args...)
		}}
	stands = []*stand{torch113, torch26, newest}
)

// need skips the test where the stand is not there.
func (s *stand) need(t testing.TB) {
	t.Helper()
	cmd := s.command(t, python, "-c", "import torch, "+s.modules+"; print(torch.__version__)")
	s.once.Do(func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.why = fmt.Sprintf("no %s: %v: %s", s.name, err, out)
		} else if !bytes.HasPrefix(out, []byte(s.torch)) {
			s.why = fmt.Sprintf("no %s: %s has torch %s", s.name, python, bytes.TrimSpace(out))
		}
	})
	if s.why != "" {
		t.Skip(s.why)
	}
}

// tried has the torch of a stand tried once, where its text is not in known.py, and hands
// the verdict to the run that has dir: Debian sid may have a newer one today.
func (s *stand) tried(t testing.TB, dir string) {
	t.Helper()
	s.trial.Do(func() {
		env, _ := hooked(t)
		cmd := s.command(t, python, "-c", "import torch.utils.data.dataloader, _rsswarden.patch as p; p._torch.read(); print(p._torch.known)")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if string(out) == "True\n" {
			return
		}
		u := untried(t, s, env, "")
		v, err := Try(t.Context(), u, env, s.start(t))
		t.Logf("torch %s is not known, its trial: %+v, %v", u.Torch, v, err)
		if v.OK() {
			s.key = u.Key
		}
	})
	if s.key == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, verdictPrefix+s.key), []byte("ok\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eachTorch runs a test on each stand.
func eachTorch(t *testing.T, test func(t *testing.T, s *stand)) {
	t.Helper()
	for _, s := range stands {
		t.Run(s.name, func(t *testing.T) {
			s.need(t)
			test(t, s)
		})
	}
}

// turn says whether the stand runs case i of n: of each stand some, of each case one
// stand at least, and all of both with RSSWARDEN_ENDURANCE.
func (s *stand) turn(i, n int) bool {
	own := slices.Index(stands, s)
	return endurance(0, 1) == 1 || i%len(stands) == own || own%n == i
}

// needTorch skips a test of this machine's torch where there is none.
func needTorch(t testing.TB) {
	t.Helper()
	torch113.need(t)
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
	Workers  int       `json:"workers"`
	Mapped   uint64    `json:"mapped"` // most that a record found mapped
	Late     uint64    `json:"late"`   // the same, from the second epoch on
	FDs      [2]int    `json:"fds"`
	Waits    []float64 `json:"waits"`
}

// training is a run of testdata/trainer.py under the hook.
type training struct {
	t    testing.TB
	cmd  *exec.Cmd
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
	script string // in place of testdata/trainer.py
	args   []string
	env    []string
	bare   bool                    // without the hook
	spoil  func(dir string)        // done to the run directory before the start
	hook   func(dir string) string // gives another directory in place of the hook
}

// train starts a training. Without a hook it has no Control.
func train(t testing.TB, o trainOptions) *training {
	t.Helper()
	on := cmp.Or(o.on, torch113)
	on.need(t)
	tmp := t.TempDir()
	tr := &training{t: t, done: make(chan struct{}), stop: filepath.Join(tmp, "stop")}
	env := append(os.Environ(), "STARTED="+filepath.Join(tmp, "started"), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	env = append(env, o.env...)
	if !o.bare {
		p, err := Prepare(Options{Env: atHome(t, env)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { Remove(p.Dir) })
		env, tr.dir = p.Env, p.Dir
		on.tried(t, p.Dir)
		tr.ctl, err = Open(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tr.ctl.Close)
		if o.hook != nil {
			env = setEnv(env, "PYTHONPATH", o.hook(p.Hook))
		}
		if o.spoil != nil {
			o.spoil(p.Dir)
		}
	}
	script, err := filepath.Abs(cmp.Or(o.script, "testdata/trainer.py"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{script, "--data", dataFile(t), "--size", fmt.Sprint(recordSize)}
	for _, a := range o.args {
		args = append(args, strings.ReplaceAll(a, "@stop", tr.stop))
	}
	tr.cmd = on.command(t, python, args...)
	tr.cmd.Env = env
	tr.cmd.Stderr = &tr.stderr
	tr.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := tr.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
		tr.err = tr.cmd.Wait()
	}()
	t.Cleanup(func() {
		syscall.Kill(-tr.cmd.Process.Pid, syscall.SIGKILL)
		<-tr.done
	})
	return tr
}

// atHome returns env with temporary places for the hook and the run directory.
func atHome(t testing.TB, env []string) []string {
	env = setEnv(env, "HOME", t.TempDir())
	return setEnv(setEnv(env, "XDG_CACHE_HOME", ""), EnvRuntime, t.TempDir())
}

// poll reads what was said and keeps it.
func (tr *training) poll() []Said {
	said := tr.ctl.Poll(true)
	tr.said = append(tr.said, said...)
	return said
}

// until polls until cond holds, or the training ends, or it takes too long.
func (tr *training) until(what string, cond func() bool) {
	tr.t.Helper()
	// Of no use to a test that passes: on a busy machine to import torch takes minutes.
	deadline := time.Now().Add(5 * time.Minute)
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
	if err := os.WriteFile(tr.stop, nil, 0o600); err != nil {
		tr.t.Fatal(err)
	}
	deadline := time.After(5 * time.Minute)
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

// last returns the final answer to a request, if it has come.
func (tr *training) last(id uint64) (Said, bool) {
	for _, s := range tr.said {
		if s.Request == id && s.Last {
			return s, true
		}
	}
	return Said{}, false
}

// recycle asks for the worker in turn n until count were recycled.
func (tr *training) recycle(count int, mode event.Mode) (recycled []Said) {
	tr.t.Helper()
	for n := 0; len(recycled) < count; n++ {
		tr.until("workers", func() bool { return len(tr.workers()) > 0 })
		pids := tr.workers()
		id, err := tr.ctl.Recycle(pids[n%len(pids)], mode)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
		s, _ := tr.last(id)
		switch {
		case s.What == event.LoaderRecycled:
			recycled = append(recycled, s)
		case s.Reason == "loader ended" || s.Reason == "no such worker" || s.Reason == "process has ended":
		default:
			tr.t.Fatalf("refused: %+v", s)
		}
	}
	return recycled
}
