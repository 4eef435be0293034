package workers

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
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

// pythonFiles is a made-up process as /proc has it.
type pythonFiles struct {
	env  []string
	args string // by spaces
	ns   string
	root string
}

func (f pythonFiles) write(t *testing.T, fs rsstest.Tree, pid string) {
	t.Helper()
	fs.Write("proc/"+pid+"/environ", strings.Join(f.env, "\x00")+"\x00")
	fs.Write("proc/"+pid+"/cmdline", strings.ReplaceAll(f.args, " ", "\x00")+"\x00")
	wardentest.NoError(t, os.MkdirAll(fs.Path("proc/"+pid+"/ns"), 0o755))
	for name, to := range map[string]string{"ns/pid": f.ns, "root": f.root} {
		wardentest.NoError(t, os.Symlink(to, fs.Path("proc/"+pid+"/"+name)))
	}
}

// hookOptions are those of a run whose hook is in a directory named hook-….
func hookOptions(proc string) *Options {
	return &Options{Proc: proc, EnvDir: "RSSWARDEN_DIR", IsHook: func(dir string) bool { return strings.HasPrefix(filepath.Base(dir), "hook-") }}
}

// TestObstacles: what keeps the hook out of a process is found, all of it, and
// nothing is where it is let in.
func TestObstacles(t *testing.T) {
	dir := t.TempDir()
	run, hook, empty := filepath.Join(dir, "run.1"), filepath.Join(dir, "hook-0123456789abcdef"), filepath.Join(dir, "empty")
	for _, d := range []string{run, hook, empty} {
		wardentest.NoError(t, os.Mkdir(d, 0o755))
	}
	passed := []string{"RSSWARDEN_DIR=" + run, "PYTHONPATH=" + hook + ":/mine"}
	for name, c := range map[string]struct {
		files pythonFiles
		want  []string
	}{
		"none":             {pythonFiles{passed, "python train.py", "pid:[1]", "/"}, nil},
		"behind others":    {pythonFiles{[]string{passed[0], "PYTHONPATH=/mine:" + hook}, "python train.py", "pid:[1]", "/"}, nil},
		"options":          {pythonFiles{passed, "python3.11 -u -W ignore -Xdev -BO train.py -I", "pid:[1]", "/"}, nil},
		"options of -c":    {pythonFiles{passed, "python -c -I", "pid:[1]", "/"}, nil},
		"options of -m":    {pythonFiles{passed, "python -um -I", "pid:[1]", "/"}, nil},
		"another's option": {pythonFiles{passed, "tar -I zstd", "pid:[1]", "/"}, nil},
		"isolated":         {pythonFiles{passed, "python3 -u -W ignore -sI train.py", "pid:[1]", "/"}, []string{"started with -I"}},
		"cleaned":          {pythonFiles{nil, "python train.py", "pid:[1]", "/"}, []string{"neither RSSWARDEN_DIR nor"}},
		"one variable":     {pythonFiles{passed[1:], "python train.py", "pid:[1]", "/"}, []string{"RSSWARDEN_DIR is not in"}},
		"PYTHONPATH":       {pythonFiles{[]string{passed[0], "PYTHONPATH=/mine"}, "python train.py", "pid:[1]", "/"}, []string{"PYTHONPATH was overwritten"}},
		"another namespace": {
			pythonFiles{passed, "python train.py", "pid:[2]", "/"}, []string{"a PID namespace of its own"},
		},
		"hidden": {pythonFiles{passed, "python train.py", "pid:[1]", empty}, []string{"does not see " + run + " and " + hook}},
		"all of it": {
			pythonFiles{nil, "python -E train.py", "pid:[2]", empty},
			[]string{"neither RSSWARDEN_DIR nor", "a PID namespace of its own", "does not see " + run, "started with -E"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := rsstest.Empty(t)
			pythonFiles{nil, "rss-watcher", "pid:[1]", "/"}.write(t, fs, "self")
			c.files.write(t, fs, "7")
			got := hookOptions(fs.Proc).obstacles(rss.ProcID{PID: 7}, run)
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, o := range got {
				if !strings.Contains(o.what, c.want[i]) || o.cure == "" {
					t.Errorf("%q, want %q", o, c.want[i])
				}
			}
		})
	}
	if got := hookOptions(t.TempDir()).obstacles(rss.ProcID{PID: 7}, run); got != nil {
		t.Errorf("of a process that cannot be read: %q", got)
	}
}

// unhooked is a made-up training without the hook, process 7, and what it forked, process 8.
type unhooked struct {
	*Workers
	t      *testing.T
	fs     rsstest.Tree
	sample rss.Sample
}

func newUnhooked(t *testing.T) *unhooked {
	fs := rsstest.Empty(t)
	u := &unhooked{Workers: New(*hookOptions(fs.Proc)), t: t, fs: fs}
	pythonFiles{nil, "rss-watcher", "pid:[1]", "/"}.write(t, fs, "self")
	for i, pid := range []int{7, 8} {
		u.sample.Procs = append(u.sample.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 10}, Parent: 6 + i, Comm: "python", State: 'S', RSS: 90 * rss.MiB})
		fs.Put(rsstest.Process{PID: pid, Parent: 6 + i, Start: 10, Comm: "python"})
		pythonFiles{[]string{"A=B"}, "python train.py", "pid:[1]", "/"}.write(t, fs, strconv.Itoa(pid))
	}
	return u
}

func (u *unhooked) loads(lib string) {
	for _, pid := range []string{"7", "8"} {
		u.fs.Write("proc/"+pid+"/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/"+lib+"\n")
	}
}

// look checks so many times, and returns what was found.
func (u *unhooked) look(times int) (all []*Unhooked) {
	u.t.Helper()
	u.last = &u.sample
	for range times {
		u.sample.Mono += time.Minute
		if found := u.CheckHook("", []rss.ProcID{{PID: 7, Start: 10}}); found != nil {
			all = append(all, found)
		}
		if u.hook.Busy() && !u.hook.Wait(10*time.Second) {
			u.t.Fatal("no answer")
		}
	}
	return all
}

// TestUnhooked: a training that the hook does not reach is found once it has loaded PyTorch,
// and what it forked is not, though it waits for its disk for a moment, as each does that
// reads data.
func TestUnhooked(t *testing.T) {
	u := newUnhooked(t)
	u.loads("libc.so.6")
	if all := u.look(3); all != nil || u.NoHello() != "" {
		t.Errorf("%+v, %s", all, u.NoHello())
	}
	u.loads("libtorch_cpu.so.1.13.0")
	all := u.look(3)
	for range 10 {
		u.sample.Procs[0].State ^= 'S' ^ 'D'
		all = append(all, u.look(2)...)
	}
	if len(all) != 1 || all[0].PID != 7 || u.NoHello() != "process 7: "+cleaned.what {
		t.Errorf("%+v, %s", all, u.NoHello())
	}
}

// TestNotUnhooked: what said hello, is below no command of ours, is a worker or has less than
// PyTorch needs is not looked into.
func TestNotUnhooked(t *testing.T) {
	for name, change := range map[string]func(*unhooked){
		"said hello": func(u *unhooked) { u.SetTrainers([]event.Trainer{{ID: u.sample.Procs[0].ID}}) },
		"not ours":   func(u *unhooked) { u.sample.Procs[0].ID.Start++ },
		"workers":    func(u *unhooked) { u.sample.Procs[0].Role, u.sample.Procs[1].Role = rss.RoleWorker, rss.RoleWorker },
		"small":      func(u *unhooked) { u.sample.Procs[0].RSS, u.sample.Procs[1].RSS = rss.MiB, rss.MiB },
	} {
		u := newUnhooked(t)
		u.loads("libtorch_cpu.so.1.13.0")
		change(u)
		if all := u.look(5); all != nil {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// TestHookCheckNeverWaits: a process that cannot be looked into, as its mmap_lock is held,
// holds up no other look.
func TestHookCheckNeverWaits(t *testing.T) {
	u := newUnhooked(t)
	environ := u.fs.Path("proc/7/environ")
	_ = os.Remove(environ)
	wardentest.NoError(t, unix.Mkfifo(environ, 0o600))
	t.Cleanup(func() { // releases a waiting reader
		if fd, err := unix.Open(environ, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			unix.Close(fd)
		}
	})
	u.last = &u.sample
	for range 10 {
		u.sample.Mono += time.Minute
		if found := u.CheckHook("", []rss.ProcID{{PID: 7, Start: 10}}); found != nil || !u.hook.Busy() {
			t.Errorf("%+v", found)
		}
	}
}

// TestHookCheckReusedPID: what is read of a process that has the PID of one that has ended
// meanwhile says nothing of that one.
func TestHookCheckReusedPID(t *testing.T) {
	fs := rsstest.Empty(t)
	pythonFiles{nil, "rss-watcher", "pid:[1]", "/"}.write(t, fs, "self")
	pythonFiles{nil, "python train.py", "pid:[1]", "/"}.write(t, fs, "7")
	fs.Write("proc/7/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	fs.Put(rsstest.Process{PID: 7, Start: 20, Comm: "python"})
	c := newHookCheck(*hookOptions(fs.Proc))
	for start, want := range map[uint64]bool{10: false, 20: true} {
		c.Ask(hookQuestion{program: program{rss.ProcID{PID: 7, Start: start}, "python"}}, false)
		c.Wait(10 * time.Second)
		if a, ok := c.Take(); !ok || a.torch != want || len(a.obstacles) > 0 != want {
			t.Errorf("of the one that was started at %d: %+v", start, a)
		}
	}
}

// TestTorchBehindMappings: libraries that were loaded early stand behind what was mapped
// later, as the kernel gives addresses out downwards: behind 65,530 mappings too.
func TestTorchBehindMappings(t *testing.T) {
	fs := rsstest.Empty(t)
	const shared = "7f0000000000-7f0000001000 rw-s 00000000 00:1a 1234567                    /dev/shm/torch_5000001_1234567890_12345 (deleted)\n"
	fs.Write("proc/7/maps", strings.Repeat(shared, 65_530)+"7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	if !hasTorch(fs.Proc, 7) {
		t.Error("it is not found")
	}
}

// TestUnhookedLine: --trim auto is named where it is not set, and where workers are trimmed
// the line does not say that nothing is.
func TestUnhookedLine(t *testing.T) {
	a := hookAnswer{program: program{rss.ProcID{PID: 1896}, "python3"}, obstacles: []obstacle{cleaned}}
	for ptrace, want := range map[bool][2]string{
		false: {"no trim, no recycle: ", "; or --trim auto, which needs no hook"},
		true:  {"so no recycle: ", "no --cleanenv)"},
	} {
		line := a.unhooked().Line(ptrace)
		if !strings.Contains(line, want[0]) || !strings.HasSuffix(line, want[1]) {
			t.Errorf("ptrace %v: %s", ptrace, line)
		}
	}
}
