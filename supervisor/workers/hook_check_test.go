package workers

import (
	"os"
	"path/filepath"
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
