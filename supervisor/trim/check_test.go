package trim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// The processes of quiet: we are an ancestor of the one that is looked at.
const (
	warden = 40
	shell  = 41
	worker = 42
	second = 43 // a thread of worker
)

func statusText(tid, parent, threads int) string {
	u := os.Geteuid()
	return fmt.Sprintf("Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\n"+
		"Uid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\nGroups:\t \nNStgid:\t%[1]d\nNSpid:\t%[2]d\nThreads:\t%[8]d\nNoNewPrivs:\t0\n"+
		"Seccomp:\t0\nSeccomp_filters:\t0\n", worker, tid, parent, u, u, u, u, threads)
}

// auxv is an auxiliary vector of a program with headers of that size.
func auxv(put func([]byte, uint64) []byte, phent uint64) string {
	var b []byte
	for _, v := range []uint64{33, 0x7ffe_0000, 16, 0x178bfbff, 6, 4096, 3, 0x5555_5040, 4, phent, 5, 13, 0, 0} {
		b = put(b, v)
	}
	return string(b)
}

func put64(b []byte, v uint64) []byte { return binary.NativeEndian.AppendUint64(b, v) }
func put32(b []byte, v uint64) []byte { return binary.NativeEndian.AppendUint32(b, uint32(v)) }

// quiet is a process that may be trimmed, as /proc shows it.
func quiet(t *testing.T) (rsstest.Tree, CheckOptions) {
	t.Helper()
	fs := rsstest.Empty(t)
	for pid, parent := range map[int]int{warden: 1, shell: warden, worker: shell} {
		fs.Put(rsstest.Process{PID: pid, Parent: parent, Comm: "python3"})
		fs.Write(fmt.Sprintf("proc/%d/status", pid), statusText(pid, parent, 2))
	}
	for _, tid := range []int{worker, second} {
		fs.Write(fmt.Sprintf("proc/42/task/%d/status", tid), statusText(tid, shell, 2))
	}
	fs.Write("proc/42/auxv", auxv(put64, 56))
	fs.Write("proc/42/maps", goodHeader+"\n7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]\n")
	larger := strings.NewReplacer("7f0000", "7f1000", "7f0001", "7f1001", "8192 kB", "16384 kB", "train", "valid").Replace(good())
	fs.Write("proc/42/smaps", good()+larger)
	fs.Write("proc/42/pagemap", "") // no PAGEMAP_SCAN there: smaps tells what is resident
	open(t, fs, 0, "pipe:[1]")
	open(t, fs, 1, "/data/train.arrow")
	return fs, CheckOptions{
		Proc: fs.Proc, ID: rss.ProcID{PID: worker, Start: 1000 + worker}, Tracer: warden, Self: warden,
		Ours: func(pid int) bool { return pid == warden },
	}
}

func open(t *testing.T, fs rsstest.Tree, fd int, to string) {
	t.Helper()
	if err := os.MkdirAll(fs.Path("proc/42/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, fs.Path(fmt.Sprintf("proc/42/fd/%d", fd))); err != nil {
		t.Fatal(err)
	}
}

func TestCheckTree(t *testing.T) {
	const status, thread, own, scope = "proc/42/status", "proc/42/task/43/status", "proc/40/status", "proc/sys/kernel/yama/ptrace_scope"
	uid, other := fmt.Sprintf("Uid:\t%d", os.Geteuid()), fmt.Sprintf("Uid:\t%d77", os.Geteuid()+1)
	for _, c := range []struct {
		name   string
		do     func(fs rsstest.Tree, o *CheckOptions)
		want   Refusal
		detail string
	}{
		{"nothing against it", func(rsstest.Tree, *CheckOptions) {}, None, ""},
		{"ended", func(fs rsstest.Tree, _ *CheckOptions) { fs.End(worker) }, Vanished, ""},
		{"another by now", func(_ rsstest.Tree, o *CheckOptions) { o.ID.Start-- }, Vanished, "42@1041"},
		{"stat is no stat", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write("proc/42/stat", "42 (x\n") }, Failed, "malformed"},
		{"ours", func(_ rsstest.Tree, o *CheckOptions) { o.Ours = func(pid int) bool { return pid == worker } }, Ours, "42"},
		{"nobody says what is ours", func(_ rsstest.Tree, o *CheckOptions) { o.Ours = nil }, None, ""},
		{"real user", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, uid, other) }, OtherUser, "77"},
		{"file system user", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "\nGid", "1\nGid") }, OtherUser, "1]"},
		{"a thread's user", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(thread, uid, other) }, OtherUser, "77"},
		{"own status is gone", func(_ rsstest.Tree, o *CheckOptions) { o.Self = 99 }, Failed, "99"},
		{"no TracerPid", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "TracerPid", "T") }, Failed, "malformed"},
		{"no user", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, uid+"\t", "Uid:\tx\t") }, Failed, "malformed"},

		{"Yama 0", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "0\n") }, None, ""},
		{"Yama 1", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "1\n") }, None, ""},
		{"Yama 1, its child", func(fs rsstest.Tree, o *CheckOptions) { fs.Write(scope, "1\n"); o.Tracer = shell }, None, ""},
		{"Yama 1, a sibling", func(fs rsstest.Tree, o *CheckOptions) { fs.Write(scope, "1\n"); o.Tracer = 77 }, Stranger, "77"},
		{"Yama 1, its descendant", func(fs rsstest.Tree, o *CheckOptions) { fs.Write(scope, "1\n"); o.Tracer = worker }, Stranger, ""},
		{"Yama 1, an orphan", func(fs rsstest.Tree, _ *CheckOptions) {
			fs.Write(scope, "1\n")
			fs.Replace(status, "PPid:\t41", "PPid:\t1")
		}, Stranger, ""},
		{"Yama 1, no parent to be seen", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "1\n"); fs.End(shell) }, Stranger, ""},
		{"Yama 1, a circle", func(fs rsstest.Tree, o *CheckOptions) {
			fs.Write(scope, "1\n")
			fs.Replace("proc/41/status", "PPid:\t40", "PPid:\t42")
		}, Stranger, ""},
		{"Yama 2", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "2\n") }, Yama, "2"},
		{"Yama 3", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "3\n") }, Yama, "3"},
		{"Yama of tomorrow", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write(scope, "x\n") }, Failed, "x"},

		{"traced", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "TracerPid:\t0", "TracerPid:\t9") }, Traced, "9"},
		{"a thread is traced", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(thread, "TracerPid:\t0", "TracerPid:\t9") }, Traced, "9"},
		{"state t", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "S (sleeping)", "t (tracing stop)") }, Traced, "42"},
		{"state T", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "S (sleeping)", "T (stopped)") }, Stopped, "42"},
		{"state Z", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "S (sleeping)", "Z (zombie)") }, Vanished, "Z"},
		{"state X", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "S (sleeping)", "X (dead)") }, Vanished, "X"},
		{"state D", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "S (sleeping)", "D (disk sleep)") }, Waiting, "42"},
		{"a thread in state D", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(thread, "S (sleeping)", "D (disk sleep)") }, Waiting, "43"},
		{"a thread ends", func(fs rsstest.Tree, _ *CheckOptions) { fs.Remove(thread) }, None, ""},
		{"a thread has ended", func(fs rsstest.Tree, _ *CheckOptions) {
			fs.Replace(thread, "S (sleeping)", "Z (zombie)")
			fs.Replace(thread, "TracerPid:\t0", "TracerPid:\t9")
		}, None, ""},

		{"strict seccomp", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "Seccomp:\t0", "Seccomp:\t1") }, Seccomp, "mode 1"},
		{"a filter", func(fs rsstest.Tree, _ *CheckOptions) { filters(fs, status, 1) }, Seccomp, "1 seccomp filters, we have 0"},
		{"a thread's filter", func(fs rsstest.Tree, _ *CheckOptions) { filters(fs, thread, 1) }, Seccomp, "43"},
		{"our filter", func(fs rsstest.Tree, _ *CheckOptions) { filters(fs, status, 1); filters(fs, own, 1) }, None, ""},
		{"one more than we", func(fs rsstest.Tree, _ *CheckOptions) { filters(fs, status, 2); filters(fs, own, 1) }, Seccomp, "we have 1"},
		{"before Linux 5.9", func(fs rsstest.Tree, _ *CheckOptions) {
			for _, name := range []string{status, thread, own} {
				fs.Replace(name, "Seccomp_filters:\t0\n", "")
			}
		}, None, ""},
		{"a filter before Linux 5.9", func(fs rsstest.Tree, _ *CheckOptions) {
			for _, name := range []string{status, own} {
				filters(fs, name, 1)
				fs.Replace(name, "Seccomp_filters:\t1\n", "")
			}
		}, Seccomp, "nobody knows"},

		{"32 bit", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write("proc/42/auxv", auxv(put32, 32)) }, Not64Bit, ""},
		{"no auxiliary vector", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write("proc/42/auxv", "") }, None, ""},
		{"maps are no maps", func(fs rsstest.Tree, _ *CheckOptions) { fs.Write("proc/42/maps", "x\n") }, Failed, "malformed"},
		{"it ends meanwhile", func(fs rsstest.Tree, _ *CheckOptions) { fs.Remove("proc/42/maps") }, Vanished, ""},
		{"it ends a little later", func(fs rsstest.Tree, _ *CheckOptions) { fs.Remove("proc/42/fd") }, Vanished, ""},

		{"a GPU is open", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/dev/nvidia0") }, Device, "/dev/nvidia0 is open"},
		{"its other device is", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/dev/nvidia-uvm") }, Device, "/dev/nvidia-uvm is open"},
		{"AMD's is", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/dev/kfd") }, Device, "/dev/kfd is open"},
		{"InfiniBand is", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/dev/infiniband/uverbs0") }, Device, "uverbs0 is open"},
		{"a display is", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/dev/dri/renderD128") }, None, ""},
		{"the name is not", func(fs rsstest.Tree, _ *CheckOptions) { open(t, fs, 7, "/data/dev/nvidia0") }, None, ""},
		{"a GPU is mapped", func(fs rsstest.Tree, _ *CheckOptions) {
			fs.Replace("proc/42/maps", "/data/train.arrow", "/dev/nvidiactl")
		}, Device, "/dev/nvidiactl is mapped"},

		{"257 threads", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "Threads:\t2", "Threads:\t257") }, Crowded, "257"},
		{"256 threads", func(fs rsstest.Tree, _ *CheckOptions) { fs.Replace(status, "Threads:\t2", "Threads:\t256") }, None, ""},
		{"more threads than were counted", func(fs rsstest.Tree, _ *CheckOptions) {
			for i := range MaxThreads {
				fs.Write(fmt.Sprintf("proc/42/task/%d/status", 1000+i), statusText(1000+i, shell, 2))
			}
		}, Crowded, ""},
		// Whichever comes first is told.
		{"a GPU and state D", func(fs rsstest.Tree, _ *CheckOptions) {
			open(t, fs, 7, "/dev/nvidia0")
			fs.Replace(thread, "S (sleeping)", "D (disk sleep)")
		}, Waiting, "43"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, o := quiet(t)
			c.do(fs, &o)
			if got, detail := Check(o); got != c.want || !strings.Contains(detail, c.detail) || (detail == "") != (got == None) {
				t.Errorf("%v (%s): %q, want %v", got, got.Reason(), detail, c.want)
			}
			if p, err := Plan(o); p.Refusal != c.want || (err != nil) != (c.want == Failed) || (len(p.Mappings) == 0) != (c.want != None) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func filters(fs rsstest.Tree, name string, n int) {
	fs.Replace(name, "Seccomp:\t0\nSeccomp_filters:\t0", fmt.Sprintf("Seccomp:\t2\nSeccomp_filters:\t%d", n))
}

// The files of what is not dumpable are not its user's: here of a process of
// root's.
func TestCheckOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give a file away")
	}
	fs, o := quiet(t)
	if err := os.Chown(fs.Path("proc/42/maps"), plainUser, plainUser); err != nil {
		t.Fatal(err)
	}
	if got, detail := Check(o); got != Undumpable || !strings.Contains(detail, "4711") {
		t.Errorf("%v, %q", got, detail)
	}
}

func TestCheckManyFiles(t *testing.T) {
	was := mostDescriptors
	mostDescriptors = 2000
	t.Cleanup(func() { mostDescriptors = was })
	fs, o := quiet(t)
	for i := range mostDescriptors - 2 {
		open(t, fs, 2+i, "x")
	}
	if got, detail := Check(o); got != None {
		t.Errorf("%v, %q", got, detail)
	}
	open(t, fs, mostDescriptors, "x")
	if got, detail := Check(o); got != Crowded || !strings.Contains(detail, "open files") {
		t.Errorf("%v, %q", got, detail)
	}
}

func TestRefusalOf(t *testing.T) {
	for err, want := range map[error]Refusal{
		unix.EACCES: Undumpable, unix.EPERM: Undumpable, unix.ESRCH: Vanished, unix.ENOENT: Vanished,
		unix.EIO: Failed, errCrowded: Crowded, errors.New("x"): Failed, refuse(Device, "x"): Device,
	} {
		if got := refusalOf(fmt.Errorf("cannot read: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestPlanTree(t *testing.T) {
	fs, o := quiet(t)
	p, err := Plan(o)
	if err != nil || p.Refusal != None || p.ID != o.ID || len(p.Mappings) != 2 ||
		p.Mappings[0].Path != "/data/valid.arrow" || p.Mappings[1].Path != "/data/train.arrow" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, c := range map[string]struct {
		do   func()
		want Refusal
	}{
		"malformed": {func() { fs.Write("proc/42/smaps", good()+"x\n") }, Failed},
		"ended":     {func() { fs.Remove("proc/42/smaps") }, Vanished},
	} {
		c.do()
		if p, err := Plan(o); p.Refusal != c.want || p.Detail == "" || (err != nil) != (c.want == Failed) || p.Mappings != nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
