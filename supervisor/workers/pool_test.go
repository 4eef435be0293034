package workers

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func writeCmdline(t *testing.T, proc string, pid int, line string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	wardentest.NoError(t, os.MkdirAll(dir, 0o755))
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "cmdline"), []byte(line), 0o644))
}

// sampleAt is a sample with these processes, all started at tick 1, the others by
// the first.
func sampleAt(mono time.Duration, pids ...int) *rss.Sample {
	s := &rss.Sample{Mono: mono}
	for i, pid := range pids {
		p := rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S'}
		if i > 0 {
			p.Parent = pids[0]
		}
		s.Procs = append(s.Procs, p)
	}
	return s
}

// matched updates until the matcher has answered as wanted, or fails.
func matched(t *testing.T, m *Pools, s *rss.Sample, want int) {
	t.Helper()
	wardentest.Until(t, fmt.Sprint("as many as match: ", want), func() bool {
		m.update(s, []rss.ProcID{{PID: 10, Start: 1}})
		sure, _ := m.split()
		return len(sure) == want
	})
}

func madeUpPools(re *regexp.Regexp, proc string) *Pools {
	return &Pools{programReader: newCommandLines(re, proc)}
}

// says has a process match or not, as if its command line had been read.
func (m *Pools) says(p *rss.Proc, matches bool) {
	m.seen[programOf(p)] = &programFact[commandLine]{fact: commandLine{matches: matches}, known: true, final: true}
}

// TestRespawns: the workers of a pool that lacks one are left alone, and for good
// where none takes its place in time.
func TestRespawns(t *testing.T) {
	const owner, other = 2, 3
	f := New(Options{Proc: t.TempDir()})
	f.Pools = *madeUpPools(nil, "")
	told := 0
	look := func(at time.Duration, pids ...int) []int {
		s := &rss.Sample{Mono: at, Procs: []rss.Proc{{ID: rss.ProcID{PID: 1, Start: 1}}}}
		for _, pid := range append([]int{owner, other}, pids...) {
			p := proc(pid, 10, 0)
			p.Parent = 1
			if pid > 10 {
				p.Parent = pid / 10
			}
			f.Pools.says(&p, pid > 10)
			f.readEnviron(t, &p, "")
			s.Procs = append(s.Procs, p)
		}
		told += len(f.Update(s, nil))
		var able []int
		for _, u := range f.Recyclable(event.AccountingRSS) {
			able = append(able, u.ID.PID)
		}
		return able
	}
	const late = time.Minute
	signalled := func(pid, size int) {
		f.Pools.Signalled(rss.ProcID{PID: pid / 10, Start: 1}, rss.ProcID{PID: pid, Start: 1}, size, late)
	}
	check := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v can be signalled, want %v", what, got, want)
		}
	}
	check("all", look(0, 21, 22, 31), 21, 22, 31)
	signalled(21, 2)
	check("it lives", look(time.Second, 21, 22, 31), 21, 22, 31)
	check("it has ended", look(2*time.Second, 22, 31), 31)
	check("it was replaced", look(3*time.Second, 22, 23, 31), 22, 23, 31)
	check("another leaves by itself", look(4*time.Second, 22, 31), 22, 31)
	signalled(22, 1)
	check("it ends late", look(9*late, 22, 31), 22, 31)
	check("it has", look(10*late, 31), 31)
	check("it is missing", look(11*late-1, 31), 31)
	if told != 0 {
		t.Errorf("told %d times too early", told)
	}
	check("no replacement in time", look(11*late, 31), 31)
	check("replacements too late", look(12*late, 23, 24, 31), 31)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0)}}
	if f.Update(s, nil); len(f.Pools.pending) != 0 {
		t.Errorf("of an owner that has ended, %v is known", f.Pools.pending)
	}
}

func TestMatcherReadsAgainAfterExec(t *testing.T) {
	proc := t.TempDir()
	writeCmdline(t, proc, 10, "pool\x00worker\x00")
	writeCmdline(t, proc, 11, "pool\x00worker\x001\x00")
	writeCmdline(t, proc, 12, "pool\x00-workers\x004\x00") // forked, not yet exec'ed
	m := madeUpPools(regexp.MustCompile("^pool worker"), proc)
	matched(t, m, sampleAt(0, 10, 11, 12), 1) // the command itself is none
	writeCmdline(t, proc, 12, "pool\x00worker\x002\x00")
	matched(t, m, sampleAt(time.Second, 10, 11, 12), 2)
	matched(t, m, sampleAt(time.Second, 10, 12), 1)

	old := sampleAt(settled+time.Second, 10, 12)
	wardentest.Until(t, "a command line that has settled is not read again", func() bool {
		m.update(old, []rss.ProcID{old.Procs[0].ID})
		return m.seen[program{id: rss.ProcID{PID: 12, Start: 1}}].final
	})
}

func TestNoMatcherMatchesNothing(t *testing.T) {
	w := New(Options{Proc: "/nowhere"})
	if err := w.Pools.Match("", w.Proc); err != nil || w.Pools.programReader != nil {
		t.Fatal(err)
	}
	w.Update(sampleAt(0, 10), nil)
	if all := w.Pools.Workers(); all != nil {
		t.Errorf("%v match", all)
	}
	if err := w.Pools.Match("(", w.Proc); err == nil {
		t.Error("a pattern that is none is taken")
	}
}

// TestWhoIsAWorker: fork keeps the command line, so what a pattern matches is not
// workers alone.
func TestWhoIsAWorker(t *testing.T) {
	const (
		no, sure, doubt = "no", "sure", "doubt"
	)
	type process struct {
		pid, parent int
		comm        string
		line        programFact[commandLine]
		want        string
	}
	yes := programFact[commandLine]{fact: commandLine{matches: true}, known: true, final: true}
	young := programFact[commandLine]{fact: commandLine{matches: true}, known: true}
	other := programFact[commandLine]{known: true, final: true}
	script := programFact[commandLine]{fact: commandLine{starter: true}, known: true, final: true}
	for name, c := range map[string]struct {
		tops  []int
		procs []process
	}{
		"the command is the owner": {[]int{1}, []process{
			{1, 0, "python", yes, no}, {2, 1, "python", yes, sure}, {3, 1, "python", yes, sure},
		}},
		"the only child of a shell": {[]int{1}, []process{
			{1, 0, "bash", yes, no}, {2, 1, "python", yes, no}, {3, 2, "python", yes, sure}, {4, 2, "python", yes, sure},
		}},
		"… that has no workers yet": {[]int{1}, []process{{1, 0, "bash", yes, no}, {2, 1, "python", yes, no}}},
		"a shell in a shell": {[]int{1}, []process{
			{1, 0, "slurm_script", other, no}, {2, 1, "bash", other, no}, {3, 2, "python", yes, no}, {4, 3, "python", yes, sure},
		}},
		"beside another in a shell": {[]int{1}, []process{
			{1, 0, "bash", yes, no}, {2, 1, "nvidia-smi", other, no}, {3, 1, "python", yes, no},
		}},
		"a script under its own name": {[]int{1}, []process{
			{1, 0, "job", script, no}, {2, 1, "python", yes, no},
		}},
		"under timeout":  {[]int{1}, []process{{1, 0, "timeout", yes, no}, {2, 1, "python", yes, no}, {3, 2, "python", yes, sure}}},
		"in a container": {[]int{1}, []process{{1, 0, "starter", other, no}, {2, 1, "appinit", other, no}, {3, 2, "python", yes, no}}},
		"another task":   {[]int{1, 5}, []process{{1, 0, "python", other, no}, {5, 0, "python", yes, no}, {6, 5, "python", yes, sure}}},
		"an owner below the command": {[]int{1}, []process{
			{1, 0, "python", other, no}, {2, 1, "python", yes, no}, {3, 2, "python", yes, sure}, {4, 2, "python", young, sure},
		}},
		"an owner whose worker has only come": {[]int{1}, []process{
			{1, 0, "python", other, no}, {2, 1, "python", yes, doubt}, {3, 2, "python", young, doubt},
		}},
		"a worker that forked": {[]int{1}, []process{
			{1, 0, "python", yes, no}, {2, 1, "python", yes, doubt}, {3, 2, "python", young, doubt}, {4, 1, "python", yes, sure},
		}},
		"a child that was not read": {[]int{1}, []process{
			{1, 0, "python", other, no}, {2, 1, "python", yes, doubt}, {3, 2, "python", programFact[commandLine]{}, no},
		}},
		"an owner whose workers have ended": {[]int{1}, []process{
			{1, 0, "python", other, no}, {2, 1, "python", yes, no},
		}},
		"a shell around each": {[]int{1}, []process{
			{1, 0, "python", other, no}, {2, 1, "python", yes, no}, {3, 2, "sh", yes, no}, {4, 3, "worker", yes, sure}, {5, 2, "sh", yes, no}, {6, 5, "worker", yes, sure},
		}},
		"no owner to replace it": {[]int{1}, []process{{1, 0, "python", other, no}, {2, 99, "python", yes, no}}},
		"our own":                {[]int{1}, []process{{1, 0, "rsswarden", yes, no}, {2, 1, "rsswarden", yes, no}, {3, 1, "python", yes, no}, {4, 3, "python", yes, sure}}},
		"in a circle":            {[]int{1}, []process{{1, 2, "sh", yes, no}, {2, 1, "sh", yes, no}, {3, 3, "sh", yes, no}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := madeUpPools(nil, "")
			s := &rss.Sample{}
			var tops []rss.ProcID
			for _, q := range c.procs {
				id := rss.ProcID{PID: q.pid, Start: 1}
				s.Procs = append(s.Procs, rss.Proc{ID: id, Parent: q.parent, Comm: q.comm, State: 'S'})
				m.seen[program{id, q.comm}] = &q.line
				if name == "an owner whose workers have ended" && q.pid == 2 {
					m.owners = map[rss.ProcID]bool{id: true}
				}
			}
			for _, pid := range c.tops {
				tops = append(tops, rss.ProcID{PID: pid, Start: 1})
			}
			m.update(s, tops)
			got := map[int]string{}
			known, unknown := m.split()
			for _, id := range known {
				got[id.PID] = sure
			}
			for _, id := range unknown {
				got[id.PID] = doubt
			}
			for _, q := range c.procs {
				if g := cmp.Or(got[q.pid], no); g != q.want {
					t.Errorf("process %d is a worker: %s, want %s", q.pid, g, q.want)
				}
			}
			if name == "a shell around each" {
				if pool := m.Members(s.Procs[1].ID); len(pool) != 2 {
					t.Errorf("the pool of process 2 is %v", pool)
				}
			}
		})
	}
}

// TestMatcherReadsShells: the command line names the shell that runs a script,
// and exec makes another program of a process.
func TestMatcherReadsShells(t *testing.T) {
	proc := t.TempDir()
	writeCmdline(t, proc, 10, "/bin/bash\x00/home/me/job\x00")
	writeCmdline(t, proc, 11, "pool\x00")
	m := madeUpPools(regexp.MustCompile("^pool"), proc)
	s := sampleAt(settled, 10, 11)
	for s.Procs[1].Comm = "pool"; !m.at(&s.Procs[0]).known || !m.at(&s.Procs[1]).known; m.update(s, []rss.ProcID{s.Procs[0].ID}) {
		time.Sleep(time.Millisecond)
	}
	matched(t, m, s, 0)
	writeCmdline(t, proc, 10, "pool\x00-workers\x001\x00")
	s.Procs[0].Comm, s.Mono = "pool", 10*settled
	matched(t, m, s, 1)
}
