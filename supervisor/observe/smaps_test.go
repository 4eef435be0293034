package observe

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
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
