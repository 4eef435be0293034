package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
	if err := os.MkdirAll(fs.Path("proc/"+pid+"/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"ns/pid": f.ns, "root": f.root} {
		if err := os.Symlink(to, fs.Path("proc/"+pid+"/"+name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestObstacles: what keeps the hook out of a process is found, all of it, and
// nothing is where it is let in.
func TestObstacles(t *testing.T) {
	dir := t.TempDir()
	run, hook, empty := filepath.Join(dir, "run.1"), filepath.Join(dir, "hook-0123456789abcdef"), filepath.Join(dir, "empty")
	for _, d := range []string{run, hook, empty} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
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
		"PYTHONPATH":       {pythonFiles{[]string{passed[0], "PYTHONPATH=/mine"}, "python train.py", "pid:[1]", "/"}, []string{"PYTHONPATH was set anew"}},
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
			got := obstacles(fs.Proc, rss.ProcID{PID: 7}, run)
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
	if got := obstacles(t.TempDir(), rss.ProcID{PID: 7}, run); got != nil {
		t.Errorf("of a process that cannot be read: %q", got)
	}
}

// TestUnreached: a training that the hook does not reach is told of once it has loaded
// PyTorch, with its forked workers once, and whoever cannot recycle says why.
func TestUnreached(t *testing.T) {
	s := opened(t, withLoader(t))
	maps := func(pid, text string) { s.fs.Write("proc/"+pid+"/maps", "7f00-7f01 r--p 00000000 08:01 1 "+text+"\n") }
	s.fs.Write("proc/5000001/environ", "A=B\x00")
	maps("5000001", "/usr/lib/libc.so.6")
	s.full()
	if s.noHello() != "no PyTorch loader said hello" {
		t.Error(s.noHello())
	}
	maps("5000001", "/usr/lib/libtorch_cpu.so.1.13.0")
	s.put(worker1, theCommand, 90*rss.MiB, 0)
	s.fs.Write("proc/5000011/environ", "A=B\x00")
	maps("5000011", "/usr/lib/libtorch_cpu.so.1.13.0")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.stderr(), "does not reach"); s.full() {
		if time.Now().After(deadline) {
			t.Fatalf("not told:\n%s", s.stderr())
		}
		s.later(time.Minute)
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		s.later(time.Minute)
		s.full()
	}
	if n := strings.Count(s.stderr(), "does not reach"); n != 1 {
		t.Errorf("told %d times:\n%s", n, s.stderr())
	}
	for _, said := range []string{s.noHello(), s.can(rule(t, "90%:gc"), &s.readings[0]).Detail} {
		if !strings.HasPrefix(said, "no PyTorch loader said hello (process ") {
			t.Errorf("%q", said)
		}
	}
	events := 0
	for _, e := range s.events() {
		if e["event"] == string(event.NameLoader) && e["what"] == string(event.LoaderUnreached) {
			events++
		}
	}
	if events == 0 || events > 2 {
		t.Errorf("%d events", events)
	}
}

// TestUnreachedWhileItWaits: a training that waits for its disk for a moment, as each does
// that reads data, is told of once all the same, and its forked workers are not told of
// beside it.
func TestUnreachedWhileItWaits(t *testing.T) {
	s := newStand(t, withLoader(t))
	torch := func(pid string) {
		s.fs.Write("proc/"+pid+"/environ", "A=B\x00")
		s.fs.Write("proc/"+pid+"/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	}
	torch("5000001")
	s.open(s.holder.begin)
	s.says("does not reach process 5000001")
	torch("5000011")
	for i := range 10 {
		state := byte('D')
		if i%2 == 1 {
			state = 'S'
		}
		anon := 90*rss.MiB + rss.Bytes(i)*rss.MiB
		s.fs.Put(rsstest.Process{PID: theCommand, Start: 10, Comm: "python", State: state, Anon: anon})
		s.put(worker1, theCommand, anon, 0)
		s.later(time.Minute)
		s.full()
		if s.unreached.Busy() && !s.unreached.Wait(10*time.Second) {
			t.Fatal("no answer")
		}
	}
	var told []any
	for _, e := range s.events() {
		if e["event"] == string(event.NameLoader) && e["what"] == string(event.LoaderUnreached) {
			told = append(told, e["pid"])
		}
	}
	if len(told) != 1 {
		t.Errorf("told of %v", told)
	}
}

// TestUnreachedReusedPID: what is read of a process that has the PID of one that has ended
// meanwhile says nothing of that one.
func TestUnreachedReusedPID(t *testing.T) {
	fs := rsstest.Empty(t)
	pythonFiles{nil, "rss-watcher", "pid:[1]", "/"}.write(t, fs, "self")
	pythonFiles{nil, "python train.py", "pid:[1]", "/"}.write(t, fs, "7")
	fs.Write("proc/7/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	fs.Put(rsstest.Process{PID: 7, Start: 20, Comm: "python"})
	r := newReachReader(fs.Proc)
	for start, want := range map[uint64]bool{10: false, 20: true} {
		r.Ask(reachAsk{key: rankKey{rss.ProcID{PID: 7, Start: start}, "python"}}, false)
		r.Wait(10 * time.Second)
		if a, ok := r.Take(); !ok || a.torch != want || len(a.obstacles) > 0 != want {
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

// TestReachNeverBlocksTheLoop: a process that cannot be looked into, as its mmap_lock is
// held, keeps nobody waiting.
func TestReachNeverBlocksTheLoop(t *testing.T) {
	s := newStand(t, withLoader(t))
	environ := s.fs.Path("proc/5000001/environ")
	_ = os.Remove(environ)
	if err := unix.Mkfifo(environ, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever waits for it is let go
		if fd, err := unix.Open(environ, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			unix.Close(fd)
		}
	})
	began := time.Now()
	s.open(s.holder.begin)
	for range 10 {
		s.later(time.Minute)
		s.full()
	}
	if took := time.Since(began); !s.unreached.Busy() || took > 10*time.Second || strings.Contains(s.stderr(), "does not reach") {
		t.Errorf("%v\n%s", took, s.stderr())
	}
}

// TestUnreachedWords: --trim auto is named to who has not asked for it, and nobody is
// told that nothing is trimmed where it is.
func TestUnreachedWords(t *testing.T) {
	for trim, want := range map[TrimMode][2]string{
		TrimHook: {"neither trimmed nor replaced", "; --trim auto trims them without the hook"},
		TrimAuto: {"trimmed by ptrace alone, and not replaced", "no --cleanenv)"},
	} {
		_, line := unreachedWords(rankKey{rss.ProcID{PID: 7}, "python"}, []obstacle{cleaned}, trim)
		if !strings.Contains(line, want[0]) || !strings.HasSuffix(line, want[1]) {
			t.Errorf("%s: %s", trim, line)
		}
	}
}
