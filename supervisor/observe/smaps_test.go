package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// smapsStand is a reader whose answers the test gives, if any, and a sample.
func smapsStand() (*Smaps, *probetest.ByHand[smapsQuestion, smapsAnswer], *rss.Sample) {
	small, other := process(4242, rss.RoleWorker, rss.MiB, 100*rss.MiB), process(4243, rss.RoleWorker, rss.MiB, 100*rss.MiB)
	trainer := process(4200, rss.RoleTrainer, rss.MiB, 100*rss.MiB)
	h := probetest.New[smapsQuestion, smapsAnswer](nil)
	return &Smaps{Reader: h.Reader, costs: probe.Bucket{Share: smapsShare}, failed: map[diagnosis.Want]time.Duration{}}, h,
		&rss.Sample{Procs: []rss.Proc{trainer, small, other}}
}

func TestSmapsInTurn(t *testing.T) {
	r, hand, s := smapsStand()
	// answered has the answer taken, whatever it is.
	answered := func() {
		t.Helper()
		hand.Answer(t, smapsAnswer{})
		r.Take()
	}
	want := func(reading diagnosis.Reading, i int) diagnosis.Want {
		return diagnosis.Want{Reading: reading, ID: s.Procs[i].ID}
	}
	asked := func(what string, now time.Duration, exp *diagnosis.Want, wants ...diagnosis.Want) smapsQuestion {
		t.Helper()
		if ask, ok := hand.Asked(); ok {
			t.Fatalf("%s: %+v was asked before", what, ask.want)
		}
		r.AskFirst(now, wants, s)
		ask, ok := hand.Asked()
		if ok != (exp != nil) || ok && ask.want != *exp {
			t.Fatalf("%s: %+v", what, ask)
		}
		return ask
	}
	first, second := want(diagnosis.WantParts, 1), want(diagnosis.WantParts, 2)

	asked("nothing wanted", 0, nil)
	gone := first
	gone.ID.PID += 100
	asked("one that is gone", 0, nil, gone)
	again := first
	again.ID.Start++
	asked("one that has the PID of another", 0, nil, again)
	for _, state := range []byte{'D', 'Z'} {
		s.Procs[1].State = state
		asked("state "+string(state), 0, nil, first)
	}
	s.Procs[1].State = 'S'
	s.Procs[1].RSS = 64 * rss.GiB
	if !proctree.Lengthy(s.Procs[1].RSS) {
		t.Fatal("64 GiB are not too much for smaps_rollup")
	}
	asked("smaps_rollup of a large one", 0, &second, first, second)
	answered()
	files := want(diagnosis.WantFiles, 1)
	asked("smaps of a large one", 0, &files, first, files)
	answered()
	s.Procs[1].RSS = 100 * rss.MiB

	// One at a time, whatever becomes of it.
	asked("the first", 0, &first, first, second)
	asked("… that hangs", time.Hour, nil, first, second)

	// What a reading costs is paid by the time that passes.
	var l diagnosis.Look
	hand.Answer(t, smapsAnswer{want: first, whole: true, found: diagnosis.Look{Parts: []diagnosis.Parts{{ID: first.ID}}}, cost: 20 * time.Millisecond})
	now := time.Hour
	r.TakeInto(now, &l)
	if len(l.Parts) != 1 || l.Parts[0].ID != first.ID {
		t.Errorf("taken %+v", l)
	}
	asked("9.9 s after 20 ms", now+9900*time.Millisecond, nil, second)
	now += 10 * time.Second
	asked("10 s after 20 ms", now, &second, second)

	// What cannot be read delays nothing else, and is tried again.
	hand.Answer(t, smapsAnswer{want: second})
	r.TakeInto(now, &diagnosis.Look{})
	asked("after a failure", now, &first, second, first)
	answered()
	asked("the failed one alone", now+30*time.Second, nil, second)
	asked("a minute later", now+smapsRetry, &second, second)

	shm := want(diagnosis.WantShm, 0)
	answered()
	ask := asked("segments", now+2*time.Minute, &shm, shm)
	if len(ask.all) != 3 || len(ask.trainers) != 1 || ask.trainers[0] != 4200 {
		t.Errorf("asked of %v, trainers %v", ask.all, ask.trainers)
	}
	hand.Answer(t, smapsAnswer{want: shm, found: diagnosis.Look{Shm: []diagnosis.Shm{{ID: shm.ID, Used: 5, Size: 10}}}})
	l = diagnosis.Look{}
	r.TakeInto(now+2*time.Minute, &l)
	if len(l.Shm) != 1 || l.Shm[0].Used != 5 {
		t.Errorf("how full it is is lost: %+v", l)
	}
	asked("segments that could not be read", now+2*time.Minute+time.Second, nil, shm)
}

// TestSmapsOfThisProcess reads the kernel's smaps of the test.
func TestSmapsOfThisProcess(t *testing.T) {
	tree := proctree.New("/proc")
	defer tree.Close()
	p, err := tree.One(os.Getpid())
	wardentest.NoError(t, err)
	for _, reading := range []diagnosis.Reading{diagnosis.WantParts, diagnosis.WantFiles, diagnosis.WantShm} {
		ask := smapsQuestion{want: diagnosis.Want{Reading: reading, ID: p.ID}, now: time.Second, all: []int{p.ID.PID}, trainers: []int{p.ID.PID}}
		r := ask.read(tree, "/proc")
		if !r.whole || r.cost <= 0 || r.want != ask.want {
			t.Errorf("%s: %+v", reading, r)
			continue
		}
		f := &r.found
		if reading == diagnosis.WantParts && (f.Parts[0].RSS < rss.MiB || f.Parts[0].At != time.Second) ||
			reading == diagnosis.WantFiles && (len(f.Files[0].Largest) == 0 || f.Files[0].At != time.Second) {
			t.Errorf("%+v", f)
		}
	}
	gone := smapsQuestion{want: diagnosis.Want{Reading: diagnosis.WantParts, ID: rss.ProcID{PID: 4200, Start: 1}}}
	if r := gone.read(tree, "/proc"); r.whole {
		t.Errorf("of a process that has ended: %+v", r)
	}
}

func process(pid int, role rss.Role, size, virtual rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, Role: role, State: 'S', RSS: size, Virtual: virtual}
}

// holding has this process hold a file of that size in /dev/shm, without its name
// if deleted.
func holding(t *testing.T, name string, size rss.Bytes, deleted bool) {
	t.Helper()
	f, err := os.Create(fmt.Sprintf("/dev/shm/%s_%d", name, os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		t.Skip(err)
	}
	if deleted {
		os.Remove(f.Name())
	}
}

// TestSHMUsers words who holds what in the /dev/shm of this process.
func TestSHMUsers(t *testing.T) {
	if space, err := shm.Usage("/proc", os.Getpid()); err != nil || !space.Tmpfs {
		t.Skipf("no tmpfs on /dev/shm: %+v, %v", space, err)
	}
	ask := shmQuestion{proc: "/proc", pid: os.Getpid(), all: []int{os.Getpid()}}
	if got := ask.read(); !strings.HasPrefix(got, "in /dev/shm this job holds nothing of size") {
		t.Fatalf("before: %s", got)
	}
	holding(t, "torch_a", 3*rss.MiB, true)
	holding(t, "torch_b", 2*rss.MiB, false)
	holding(t, "mine", 2*rss.MiB, true)
	holding(t, "torch_c", 4096, true)
	got := ask.read()
	want := fmt.Sprintf(`^in /dev/shm this job holds torch 5\.00 MiB \(3 segments, 2 without a name, in processes %d\), [a-z ]+ 2\.00 MiB \(1 segment, 1 without a name, in processes %d\)$`, os.Getpid(), os.Getpid())
	if !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	ask.pid = 1 << 22
	if got := ask.read(); got != "" {
		t.Errorf("of one that is gone %q", got)
	}

	g := rsstest.NewGroup(t, rss.GiB)
	ask.pid, ask.level = os.Getpid(), g.Dir
	if got := ask.read(); !strings.Contains(got, " of shared memory are charged to memory/rsswarden-test") && g.Version == 1 {
		t.Errorf("with a cgroup: %s", got)
	}
}

// TestMostUsers: the fullest go first, and thousands of workers are not listed.
func TestMostUsers(t *testing.T) {
	held := shm.Held{Segments: []shm.Segment{
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{1, 2, 3, 4, 5, 6, 7, 8}, Deleted: true},
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{8}},
		{Kind: shm.Torch, Dev: 2, Size: rss.MiB, Holders: []int{99}},
	}}
	a := shmQuestion{}
	if got, want := a.segments(&held, 1, shm.Torch), "2 segments, 1 without a name, in processes 8, 1, 2, 3, 4, 5 and 2 more"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFilePages: what a process has mapped of a file bounds its pages of files, for another
// that was not read yet as well; nothing is read in the first
// minute while the limit is far.
func TestFilePages(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "data.mdb"))
	wardentest.NoError(t, err)
	defer file.Close()
	const size = 300 * rss.MiB
	wardentest.NoError(t, file.Truncate(int64(size)))
	b, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	wardentest.NoError(t, err)
	defer syscall.Munmap(b)
	start, err := proctree.StartTime("/proc", os.Getpid())
	wardentest.NoError(t, err)
	f := NewFilePages("/proc")
	procs := []rss.Proc{{ID: rss.ProcID{PID: os.Getpid(), Start: start}, File: 20 * rss.MiB}, {ID: rss.ProcID{PID: 1 << 22, Start: 1}, File: 10 * rss.MiB}, {File: rss.MiB}}
	at := func(now time.Duration, used rss.Bytes) {
		f.Update(now, []event.Limit{{Accounting: event.AccountingRSS, UsedMax: used, Limit: rss.GiB}}, procs)
	}
	at(0, 300*rss.MiB)
	if f.Busy() {
		t.Error("it is read although less than two fifths are used")
	}
	at(time.Second, 500*rss.MiB)
	if !f.Wait(10 * time.Second) {
		t.Fatal("it is not read")
	}
	at(2*time.Second, 500*rss.MiB)
	if got := procs[0].FileMost; got < size || got > size+100*rss.MiB {
		t.Errorf("%v at most, want %v and some code", got, size)
	}
	if procs[1].FileMost != procs[0].FileMost || procs[2].FileMost != rss.MiB {
		t.Errorf("%v for one that could not be read, %v for a small one; want %v, %v", procs[1].FileMost, procs[2].FileMost, procs[0].FileMost, rss.MiB)
	}
	f = NewFilePages("/proc")
	if at(spansSoon, 300*rss.MiB); !f.Busy() {
		t.Error("it is not read after a minute, for what the whole job needs")
	}
	f.Wait(10 * time.Second)
}

func TestReadWithin(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "fifo")
	wardentest.NoError(t, os.WriteFile(file, []byte("A=b\n"), 0o644))
	wardentest.NoError(t, unix.Mkfifo(fifo, 0o600))
	if b, err := ReadWithin(file); err != nil || string(b) != "A=b\n" {
		t.Errorf("read %q, %v", b, err)
	}
	if b, err := ReadWithin(fifo); err == nil { // without a writer open would hang
		t.Errorf("read %q from a FIFO", b)
	}
	if _, err := ReadWithin(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("error %v, want that it does not exist", err)
	}
}

func putPSS(fs rsstest.Tree, pid int, size, pss rss.Bytes) {
	fs.Put(rsstest.Process{PID: pid, Parent: 4200, Comm: "python", Anon: size})
	fs.Write(fmt.Sprintf("proc/%d/smaps_rollup", pid), fmt.Sprintf(
		"5555e4cc7000-7ffdd6211000 ---p 00000000 00:00 0                          [rollup]\nRss: %15d kB\nPss: %15d kB\n", size/rss.KiB, pss/rss.KiB))
}

// TestPSSReaderReadsOneAfterTheOther without a look in full between them.
func TestPSSReaderReadsOneAfterTheOther(t *testing.T) {
	fs := rsstest.Empty(t)
	r := NewPSS(new(probe.Set), fs.Proc)
	var procs []rss.Proc
	const n = 5
	for i := range n {
		pid := 4242 + i
		putPSS(fs, pid, 100*rss.MiB, 40*rss.MiB)
		procs = append(procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1000 + uint64(pid)}, RSS: 100 * rss.MiB, Anon: 100 * rss.MiB})
	}
	r.Update(0, procs, nil)
	for i := 1; r.Busy(); i++ {
		if !r.Wait(10*time.Second) || !r.TakeOne(time.Duration(i)*time.Second) {
			t.Fatal("no reading came")
		}
		if i > n {
			t.Fatal("something is read twice")
		}
	}
	r.Update(n*time.Second, procs, nil)
	for _, p := range procs {
		if p.PSS == nil || p.PSS.PSS != 40*rss.MiB {
			t.Errorf("process %d has PSS %+v", p.ID.PID, p.PSS)
		}
	}
}

// TestPSSReaderReadsLargeOnesInPieces: and it reports those that it leaves alone.
func TestPSSReaderReadsLargeOnesInPieces(t *testing.T) {
	fs := rsstest.Empty(t)
	putPSS(fs, 4242, rss.GiB, rss.GiB) // which would be wrong
	fs.Write(fmt.Sprintf("proc/%d/smaps", 4242), "1000-2000 r--s 0 00:00 0\nRss: 4194304 kB\nPss: 2097152 kB\n")
	procs := []rss.Proc{
		{ID: rss.ProcID{PID: 4242, Start: 1000 + 4242}, RSS: 4 * rss.GiB},
		{ID: rss.ProcID{PID: 4242 + 1, Start: 1}, RSS: 100 * rss.GiB},
	}
	r := NewPSS(new(probe.Set), fs.Proc)
	r.Update(0, procs, nil)
	if !r.Wait(10*time.Second) || !r.TakeOne(time.Second) {
		t.Fatal("no reading came")
	}
	r.Update(time.Second, procs, nil)
	if p := procs[0].PSS; p == nil || p.PSS != 2*rss.GiB || p.RSS != 4*rss.GiB {
		t.Errorf("PSS %+v, want what smaps says", p)
	}
	if procs[1].PSS != nil || r.Busy() {
		t.Errorf("100 GiB are read, which may be one mapping: %+v", procs[1].PSS)
	}
	if told := r.Told(); len(told) != 1 || !strings.Contains(told[0].Error(), fmt.Sprint("process ", 4242+1)) {
		t.Errorf("told %v", told)
	}
	r.Update(2*time.Second, procs, nil)
	if told := r.Told(); told != nil {
		t.Errorf("told again: %v", told)
	}
	var none *PSS
	if none.Told() != nil {
		t.Error("without a reader there is something to tell")
	}
}

// TestPSSReaderNeverBlocksTheLoop: the answer may wait, and the process be gone.
func TestPSSReaderNeverBlocksTheLoop(t *testing.T) {
	r := NewPSS(new(probe.Set), t.TempDir())
	p := []rss.Proc{{ID: rss.ProcID{PID: 4242, Start: 1}, RSS: rss.MiB}}
	deadline := time.Now().Add(10 * time.Second)
	r.Update(0, p, nil)
	for i := 1; r.Busy(); i++ {
		if time.Now().After(deadline) {
			t.Fatal("no answer about a process that is gone")
		}
		r.Update(time.Duration(i)*time.Millisecond, p, nil)
	}
	if p[0].PSS != nil {
		t.Errorf("PSS %+v of a process that is gone", p[0].PSS)
	}
	var none *PSS
	none.Update(0, p, nil)
	if _, due := none.Next(0); due {
		t.Error("without a reader a reading is due")
	}
}

// TestPSSUselessWakes: a job may stand for days where only a reading tells on which
// side of a rung it is. The loop wakes for them for half a minute, and then for as many
// as 0.2 % of a core are, until something is done.
func TestPSSUselessWakes(t *testing.T) {
	hand := probetest.New[proctree.PSSAsk, PSSAnswer](new(probe.Set))
	r := PSSBy(hand.Reader)
	r.Hurry(true)
	const cost = 20 * time.Millisecond
	p := rss.Proc{ID: rss.ProcID{PID: 4200, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}
	woken := func(from, to time.Duration) (n int) {
		for now := from; now < to; now += 100 * time.Millisecond {
			p.RSS += rss.MiB
			r.budget.Update([]rss.Proc{p})
			r.Wake(now)
			if ask, ok := hand.Asked(); ok {
				n++
				hand.Answer(t, PSSAnswer{Ask: ask, PSS: rss.PSS{PSS: p.RSS, RSS: p.RSS, Cost: cost}})
				r.TakeOne(now)
			}
		}
		return n
	}
	all := func(share float64, d time.Duration) int { return int(share * float64(d) / float64(cost)) }
	first := woken(0, 30*time.Second)
	if want := all(cadence.HurriedShare, 30*time.Second); first < want-2 || first > want+2 {
		t.Errorf("%d readings in half a minute, want %d", first, want)
	}
	woken(30*time.Second, 2*time.Minute)
	if n, want := woken(2*time.Minute, 12*time.Minute), all(pssWakes.Share, 10*time.Minute); n < want-2 || n > want+2 {
		t.Errorf("%d readings in ten minutes, want %d", n, want)
	}
	r.Acted()
	if n := woken(12*time.Minute, 12*time.Minute+30*time.Second); n < first-2 {
		t.Errorf("%d readings in the half minute after something was done, want %d", n, first)
	}
}

// TestHurriedPSSWakes: while a decision depends on readings, the loop is to wake for the
// next one; otherwise the next full read is soon enough.
func TestHurriedPSSWakes(t *testing.T) {
	hand := probetest.New[proctree.PSSAsk, PSSAnswer](new(probe.Set))
	r := PSSBy(hand.Reader)
	r.budget.Update([]rss.Proc{{ID: rss.ProcID{PID: 4200, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}})
	if _, ok := r.Next(0); ok {
		t.Error("in no hurry the loop is to wake")
	}
	r.Hurry(true)
	if pause, ok := r.Next(0); !ok || pause > 0 {
		t.Errorf("the next reading is due in %v, %v", pause, ok)
	}
	r.Wake(0)
	if ask, ok := hand.Asked(); !ok || ask.ID.PID != 4200 {
		t.Errorf("asked for %+v, %v", ask, ok)
	}
	if _, ok := r.Next(0); ok {
		t.Error("another is due while one is under way")
	}
	hand.Answer(t, PSSAnswer{})
}
