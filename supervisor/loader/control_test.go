package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// scripted is a Control over a run directory whose trainer is this test.
type scripted struct {
	*Control
	t   *testing.T
	id  rss.ProcID
	dir string
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	c, err := Open(dir)
	wardentest.NoError(t, err)
	t.Cleanup(c.Close)
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	return &scripted{c, t, me.Owner, dir}
}

func (s *scripted) hello(id rss.ProcID) {
	s.t.Helper()
	text := fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":1,"torch":"1.13.0","can_recycle":true}`, id.PID, id.Start)
	wardentest.NoError(s.t, replaceFile(filepath.Join(s.dir, nodedir.FileOf("hello", id)), []byte(text)))
}

// log adds text to what the trainer reports.
func (s *scripted) log(format string, args ...any) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, nodedir.FileOf("log", s.id)), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	wardentest.NoError(s.t, err)
	_, err = fmt.Fprintf(f, format, args...)
	wardentest.NoError(s.t, errors.Join(err, f.Close()))
}

// loader has the trainer say hello and report a loader with these workers.
func (s *scripted) loader(workers ...int) {
	s.t.Helper()
	s.hello(s.id)
	list, _ := json.Marshal(workers)
	s.log(`{"what":"iter","pid":1,"n":1,"workers":%s,"num_workers":%d,"kind":"map","persistent":true,"can_recycle":true,"start":"fork"}`+"\n",
		list, len(workers))
}

func (s *scripted) ctl() ctl {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, nodedir.FileOf("ctl", s.id)))
	wardentest.NoError(s.t, err)
	var c ctl
	wardentest.NoError(s.t, json.Unmarshal(data, &c))
	return c
}

func (s *scripted) expect(want ...event.Loader) []Said {
	s.t.Helper()
	said := s.Poll(true)
	var got []event.Loader
	for _, one := range said {
		got = append(got, one.What)
	}
	if !reflect.DeepEqual(got, want) {
		s.t.Fatalf("said %q, want %q", got, want)
	}
	return said
}

// TestLeft: what is left is said in coarse steps, and to a trainer only where it has a fork helper.
func TestLeft(t *testing.T) {
	s := newScripted(t)
	wardentest.NoError(t, s.SetForAll(7, false))
	s.loader(101)
	s.log(`{"what":"iter","pid":1,"n":2,"workers":[102],"num_workers":1,"kind":"map","can_recycle":true,"start":"fork","helper":103}` + "\n")
	s.Poll(true)
	for _, step := range []struct{ left, said rss.Bytes }{
		{8 * rss.GiB, 6 * rss.GiB}, {6 * rss.GiB, 6 * rss.GiB}, {12 * rss.GiB, 6 * rss.GiB}, {5 * rss.GiB, 15 * rss.GiB / 4},
		{16 * rss.GiB, 12 * rss.GiB}, {200 * rss.MiB, 0}, {0, 0},
	} {
		wardentest.NoError(t, s.SetLeft(step.left))
		var all settings
		data, err := os.ReadFile(filepath.Join(s.dir, settingsFile))
		wardentest.NoError(t, errors.Join(err, json.Unmarshal(data, &all)))
		if c := s.ctl(); all.Left != step.said || all.NoFile != 7 || c.Left == nil || *c.Left != step.said {
			t.Errorf("%v left: %+v, to the trainer %+v", step.left, all, c)
		}
	}
	if s.Roles()[103] != rss.RoleForkHelper {
		t.Errorf("roles %v", s.Roles())
	}
	s.log(`{"what":"refused","pid":1,"n":2,"why":"fork helper: it has ended"}` + "\n")
	s.Poll(true)
	wardentest.NoError(t, s.SetLeft(rss.GiB))
	if c := s.ctl(); c.Left != nil || s.Roles()[103] != "" {
		t.Errorf("%+v, roles %v", c, s.Roles())
	}
}

func TestControl(t *testing.T) {
	s := newScripted(t)
	s.expect()
	if _, _, err := s.Trim(); !errors.Is(err, ErrNoProcess) {
		t.Errorf("trim without a process: %v", err)
	}
	wardentest.NoError(t, s.SetBudget(100*rss.MiB))
	s.hello(s.id)
	s.expect(event.LoaderHello)
	if got := s.ctl().Budget; got != 100*rss.MiB {
		t.Errorf("a trainer that comes later got the budget %v", got)
	}
	if len(s.Roles()) != 0 {
		t.Errorf("roles without a loader: %v", s.Roles())
	}

	s.loader(101, 102)
	s.expect(event.LoaderIter)
	want := map[int]rss.Role{s.id.PID: rss.RoleTrainer, 101: rss.RoleWorker, 102: rss.RoleWorker}
	if got := s.Roles(); !reflect.DeepEqual(got, want) {
		t.Errorf("roles %v", got)
	}

	trim, asked, err := s.Trim()
	if err != nil || !reflect.DeepEqual(asked, []int{101, 102}) {
		t.Fatalf("asked %v, %v", asked, err)
	}
	recycle, err := s.Recycle(102, event.Drain)
	wardentest.NoError(t, err)
	c := s.ctl()
	if !reflect.DeepEqual(c.Trim, []ctlSeveral{{trim, []int{101, 102}}}) || !reflect.DeepEqual(c.Recycle, []ctlRecycle{{recycle, 102, event.Drain}}) {
		t.Errorf("%+v", c)
	}

	// One of two answers; a line arrives in two pieces.
	s.log(`{"what":"trimmed","pid":101,"worker":101,"id":%d,"before":300,"after":100,"count":1}`+"\n"+`{"what":"acc`, trim)
	if said := s.expect(event.LoaderTrimmed); said[0].Freed != 200 || said[0].Request != trim || !said[0].Last {
		t.Errorf("%+v", said)
	}
	s.log(`epted","pid":1,"worker":102,"id":%d,"n":1}`+"\n", recycle)
	s.expect(event.LoaderAccepted)
	s.log(`{"what":"started","pid":1,"worker":102,"new":103,"id":%d,"n":1}`+"\n", recycle)
	s.expect(event.LoaderStarted)
	if s.Roles()[103] != rss.RoleWorker {
		t.Error("a replacement that comes is no worker")
	}
	s.log(`{"what":"swapped","pid":1,"worker":102,"new":103,"id":%d,"n":1}`+"\n", recycle)
	s.expect(event.LoaderSwapped)
	l := s.Trainers()[0].Loaders[0]
	if !reflect.DeepEqual(l.Workers, []int{101, 103}) || !reflect.DeepEqual(l.Leaving, []int{102}) || l.Starting != 0 {
		t.Errorf("%+v", l)
	}
	s.log(`{"what":"recycled","pid":1,"worker":102,"new":103,"id":%d,"n":1,"pause_ms":4}`+"\n", recycle)
	s.expect(event.LoaderRecycled)
	wardentest.NoError(t, s.Cancel(trim))
	if c := s.ctl(); len(c.Trim)+len(c.Recycle) != 0 {
		t.Errorf("%+v", c)
	}

	// A watcher that is started again reads all once more, and goes on counting.
	again, err := Open(s.dir)
	wardentest.NoError(t, err)
	defer again.Close()
	said := again.Poll(true)
	if len(said) != 7 || !said[0].Old || !reflect.DeepEqual(again.Trainers()[0].Loaders, s.Trainers()[0].Loaders) {
		t.Errorf("%+v", said)
	}
	if id, err := again.Recycle(101, event.Swap); err != nil || id <= recycle {
		t.Errorf("id %d after %d, %v", id, recycle, err)
	}

	s.log(`{"what":"ended","pid":1,"n":1}` + "\n")
	s.expect(event.LoaderEnded)
	if len(s.Roles()) != 0 {
		t.Errorf("roles after the end: %v", s.Roles())
	}
}

// TestTrainerEnds has a trainer end with a request open: it is answered.
func TestTrainerEnds(t *testing.T) {
	s := newScripted(t)
	cmd := exec.Command("sleep", "60")
	wardentest.NoError(t, cmd.Start())
	of, err := identify(cmd.Process.Pid)
	wardentest.NoError(t, err)
	s.id = of.Owner
	s.loader(101)
	s.expect(event.LoaderHello, event.LoaderIter)
	id, err := s.Recycle(101, event.Swap)
	wardentest.NoError(t, err)
	s.log(`{"what":"accepted","pid":1,"worker":101,"id":%d,"n":1}`+"\n", id)
	cmd.Process.Kill()
	cmd.Wait()
	var said []Said
	for deadline := time.Now().Add(10 * time.Second); len(s.Trainers()) > 0 && time.Now().Before(deadline); {
		said = append(said, s.Poll(true)...)
	}
	if len(said) != 3 || said[1].What != event.LoaderRefused || said[1].Request != id || !said[1].Last ||
		said[1].Reason != string(event.ReasonVanished) || said[2].What != event.LoaderEnded {
		t.Errorf("%+v", said)
	}
	if left, _ := readDirNames(s.dir, 10); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestControlGarbage has all kinds of files lie in the run directory.
func TestControlGarbage(t *testing.T) {
	s := newScripted(t)
	s.hello(s.id)
	s.expect(event.LoaderHello)
	files := map[string]string{
		"hello.1.1": "", "hello.2.2": "{}", "hello.x": "x", "hello.-1.5": "x", "hello.01.5": "x", "hello.3.3": strings.Repeat("x", maxLine+1),
		"hello.4.4": `{"v":1,"pid":5,"start":4}`, "ctl.9.9": "[", "ctl.8.8": `{"last":99999999999999999999}`, "log.7.7": "x", "noise": "\x00",
	}
	for name, text := range files {
		wardentest.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	wardentest.NoError(t, os.Mkdir(filepath.Join(s.dir, "hello.6.6"), 0o700))
	wardentest.NoError(t, os.Symlink("/dev/zero", filepath.Join(s.dir, "hello.7.7")))
	s.log("%s", "\n\n{}\nnull\n\xff\xfe\n"+strings.Repeat("y", maxLine+1)+"\n"+`{"what":"iter","pid":1,"n":1,"workers":[5],"num_workers":1}`+"\n")
	s.expect(event.LoaderIter)
	if s.Malformed() == 0 {
		t.Error("nothing was counted as malformed")
	}
	// A log that outgrows what is read at once is read over several calls.
	line := `{"what":"trimmed","pid":5,"worker":5,"why":"` + strings.Repeat("z", 400) + `"}` + "\n"
	n := 3*readChunk/len(line) + 1
	s.log("%s", strings.Repeat(line, n))
	got, calls := 0, 0
	for ; got < n && calls < 100; calls++ {
		got += len(s.Poll(true))
	}
	if got != n || calls < 3 {
		t.Errorf("%d of %d lines in %d calls", got, n, calls)
	}
	if again, err := Open(s.dir); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

func TestOpenRefusesUnsafe(t *testing.T) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o755))
	if _, err := Open(dir); err == nil {
		t.Error("opened a directory that others can enter")
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opened nothing: %v", err)
	}
}

// TestManyDirs: with a directory for each rank, each is read in its turn, and at once when
// notified of news.
func TestManyDirs(t *testing.T) {
	base := t.TempDir()
	var dirs []string
	for i := range 3 * dirsInTurn {
		dir := filepath.Join(base, fmt.Sprint(i))
		wardentest.NoError(t, os.Mkdir(dir, 0o700))
		dirs = append(dirs, dir)
	}
	c, err := Open(dirs[0])
	wardentest.NoError(t, err)
	defer c.Close()
	for _, dir := range dirs[1:] {
		wardentest.NoError(t, c.Add(dir))
	}
	c.Poll(true)
	for _, d := range c.dirs {
		d.listed, d.recent = time.Time{}, false
	}
	seen := func() (n int) {
		for _, d := range c.dirs {
			if !d.listed.IsZero() {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		c.Poll(false)
		if n := seen(); n != (i+1)*dirsInTurn {
			t.Errorf("after %d looks %d directories were looked into", i+1, n)
		}
	}
}

// TestControlGC holds what the ctl file says about collections and private mappings, and
// which processes are asked.
func TestControlGC(t *testing.T) {
	s := newScripted(t)
	wardentest.NoError(t, s.SetPrivate(true))
	s.hello(s.id)
	s.expect(event.LoaderHello)
	if !s.ctl().Private {
		t.Error("a trainer that comes later does not get the option for private mappings")
	}
	if _, _, err := s.GC(); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a process without a loader was asked: %v", err)
	}
	s.loader(101, 102)
	s.expect(event.LoaderIter)
	if _, asked, err := s.GC(102); err != nil || !slices.Equal(asked, []int{102}) {
		t.Errorf("asked %v, %v", asked, err)
	}
	id, asked, err := s.GC()
	if err != nil || !slices.Equal(asked, []int{101, 102, s.id.PID}) {
		t.Fatalf("asked %v, %v", asked, err)
	}
	if c := s.ctl(); len(c.GC) != 2 || c.GC[1].ID != id || !slices.Equal(c.GC[1].PIDs, asked) || len(c.Trim) != 0 {
		t.Errorf("%+v", c)
	}
	s.log(`{"what":"collected","pid":101,"worker":101,"id":%d,"before":500,"after":200,"freed":300,"pause_ms":40}`+"\n", id)
	if said := s.expect(event.LoaderCollected); said[0].Freed != 300 || said[0].Paused != 0.04 || !said[0].Last || said[0].Request != id {
		t.Errorf("%+v", said)
	}
	if c := s.ctl(); !slices.Equal(s.pending[id].pids[s.id], []int{102, s.id.PID}) {
		t.Errorf("%+v", c)
	}
	if err := s.SetPrivate(false); err != nil || s.ctl().Private {
		t.Errorf("%+v, %v", s.ctl(), err)
	}
	s.log(`{"what":"off","pid":%d,"why":"x"}`+"\n", s.id.PID)
	s.expect(event.LoaderOff)
	if _, asked, err := s.GC(); err != nil || !slices.Equal(asked, []int{101, 102}) {
		t.Errorf("a trainer whose hook is off was asked: %v, %v", asked, err)
	}
}

// successor goes on with a training in the place of a watcher that died.
func (tr *training) successor() {
	tr.t.Helper()
	c, err := Open(tr.dir)
	wardentest.NoError(tr.t, err)
	tr.t.Cleanup(c.Close)
	tr.ctl = c
	tr.poll()
}

// TestOldRecycleIsWithdrawn: what a watcher asked of a trainer that was not looking
// is not done after its death, and what the next one asks for is.
func TestOldRecycleIsWithdrawn(t *testing.T) {
	t.Parallel()
	torchtest.On(t, torch113, func(t *testing.T, on *stand) {
		tr := train(t, trainOptions{on: on, args: "--part 200 --step 0.01"})
		worker := tr.some()[0]
		trainer := tr.ctl.Trainers()[0].ID.PID
		wardentest.NoError(t, syscall.Kill(trainer, syscall.SIGSTOP))
		old, err := tr.ctl.Recycle(worker, event.Drain)
		wardentest.NoError(t, err)
		tr.said = nil
		tr.successor()
		if n := tr.ctl.Withdrawn(); n != 1 || tr.ctl.Inherited() {
			t.Errorf("%d withdrawn, inherited %v", n, tr.ctl.Inherited())
		}
		wardentest.NoError(t, syscall.Kill(trainer, syscall.SIGCONT))
		tr.recycle(2, event.Swap)
		if out := tr.finish(); out.Wrong != 0 || out.Errors != 0 {
			t.Errorf("%+v", out)
		}
		for _, s := range tr.said {
			if s.Request == old {
				t.Errorf("said of the old request: %+v", s)
			}
		}
	})
}

// TestOldRecycleOfAnEpoch: what waits for a loader's next epoch is not forgotten with
// the watcher that asked for it, and done once.
func TestOldRecycleOfAnEpoch(t *testing.T) {
	t.Parallel()
	torchtest.On(t, torch113, func(t *testing.T, on *stand) {
		tr := stream(t, on, "--break-at 20")
		old := tr.some()
		id, err := tr.ctl.Recycle(old[0], event.Swap)
		wardentest.NoError(t, err)
		tr.until("an answer", func() bool { return len(tr.heard(event.LoaderAccepted, id)) > 0 })
		tr.said = nil
		tr.successor()
		if n := tr.ctl.Withdrawn(); n != 0 || tr.ctl.Inherited() {
			t.Errorf("%d withdrawn, inherited %v", n, tr.ctl.Inherited())
		}
		tr.until("the end of it", func() bool {
			_, ok := tr.last(id)
			return ok && len(tr.heard(event.LoaderRecycled, 0)) == len(old) // all workers of the loader, in one go
		})
		tr.renew() // and the next one is asked for as ever
		tr.finish()
		if a, r := len(tr.heard(event.LoaderAccepted, id)), len(tr.heard(event.LoaderRecycled, id)); a != 1 || r != 1 {
			t.Errorf("accepted %d times, replaced %d times: %+v", a, r, tr.said)
		}
	})
}

// TestInheritedRequests: of what an earlier watcher asked for stays what was accepted
// and is not answered yet.
func TestInheritedRequests(t *testing.T) {
	s := newScripted(t)
	s.loader(101, 102, 103, 104)
	s.expect(event.LoaderHello, event.LoaderIter)
	_, _, err := s.Trim()
	wardentest.NoError(t, err)
	for worker := 101; worker <= 104; worker++ {
		_, err := s.Recycle(worker, event.Drain)
		wardentest.NoError(t, err)
	}
	s.log(`{"what":"accepted","pid":1,"worker":101,"id":2,"n":1}` + "\n" +
		`{"what":"accepted","pid":1,"worker":102,"id":3,"n":1,"why":"` + string(event.ReasonDeferred) + `"}` + "\n" +
		`{"what":"accepted","pid":1,"worker":103,"id":4,"n":1}` + "\n" + `{"what":"recycled","pid":1,"worker":103,"new":105,"id":4,"n":1}` + "\n")
	successor, err := Open(s.dir)
	wardentest.NoError(t, err)
	defer successor.Close()
	wardentest.NoError(t, successor.SetBudget(100*rss.MiB))
	s.Control = successor
	s.Poll(true)
	want := ctl{V: 1, Last: 5, Budget: 100 * rss.MiB, Trim: []ctlSeveral{}, Recycle: []ctlRecycle{{2, 101, event.Drain}, {3, 102, event.Drain}}}
	if got := s.ctl(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := successor.Withdrawn(); n != 1 || !successor.Inherited() {
		t.Errorf("%d withdrawn, inherited %v", n, successor.Inherited())
	}
	s.log(`{"what":"recycled","pid":1,"worker":101,"new":106,"id":2,"n":1}` + "\n")
	s.expect(event.LoaderRecycled)
	if successor.Inherited() {
		t.Error("it is waited for what has ended")
	}
	if id, err := successor.Recycle(104, event.Swap); err != nil || id != 6 {
		t.Errorf("request %d, %v", id, err)
	}
	if got, want := s.ctl().Recycle, []ctlRecycle{{3, 102, event.Drain}, {6, 104, event.Swap}}; !reflect.DeepEqual(got, want) {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
}

// TestInheritedAfterAll: what was accepted may follow megabytes.
func TestInheritedAfterAll(t *testing.T) {
	s := newScripted(t)
	s.loader(101)
	s.expect(event.LoaderHello, event.LoaderIter)
	id, err := s.Recycle(101, event.Drain)
	wardentest.NoError(t, err)
	line := `{"what":"trimmed","pid":101,"worker":101}` + "\n"
	s.log("%s", strings.Repeat(line, (maxBehind+2)*readChunk/len(line)+1)+`{"what":"accepted","pid":1,"worker":101,"id":1,"n":1}`+"\n")
	successor, err := Open(s.dir)
	wardentest.NoError(t, err)
	defer successor.Close()
	s.Control = successor
	successor.Poll(true)
	if err := successor.SetBudget(rss.GiB); err != nil || !successor.Inherited() {
		t.Errorf("%v, inherited %v before all was read", err, successor.Inherited())
	}
	if c := s.ctl(); c.Budget != 0 || len(c.Recycle) != 1 {
		t.Errorf("%+v before all was read", c)
	}
	for range 4 {
		successor.Poll(true)
	}
	if c := s.ctl(); c.Budget != rss.GiB || len(c.Recycle) != 1 || c.Recycle[0].ID != id || successor.Withdrawn() != 0 {
		t.Errorf("%+v, %d withdrawn", c, successor.Withdrawn())
	}
}
