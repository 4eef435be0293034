package trim

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
	fs.Write("proc/42/maps", goodHeader+"\n7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]\n")
	larger := strings.NewReplacer("7f0000", "7f1000", "7f0001", "7f1001", "8192 kB", "16384 kB", "train", "valid").Replace(good())
	fs.Write("proc/42/smaps", good()+larger)
	fs.Write("proc/42/pagemap", "") // no PAGEMAP_SCAN there: smaps tells what is resident
	must(t, os.Truncate(fs.Path("proc/42/pagemap"), 1<<39))
	open(t, fs, 0, "pipe:[1]")
	open(t, fs, 1, "/data/train.arrow")
	return fs, CheckOptions{
		Proc: fs.Proc, ID: rss.ProcID{PID: worker, Start: 1000 + worker}, Tracer: warden, Self: warden,
		Ours: func(pid int) bool { return pid == warden },
	}
}

func open(t *testing.T, fs rsstest.Tree, fd int, to string) {
	t.Helper()
	must(t, os.MkdirAll(fs.Path("proc/42/fd"), 0o755))
	must(t, os.Symlink(to, fs.Path(fmt.Sprintf("proc/42/fd/%d", fd))))
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
		{"no test for ours", func(_ rsstest.Tree, o *CheckOptions) { o.Ours = nil }, None, ""},
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
		}, Seccomp, "unknown"},

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
		// The first one found is reported.
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
			if p := new(Planner).Plan(o); p.Refusal != c.want || (len(p.Mappings) == 0) != (c.want != None) {
				t.Errorf("%+v", p)
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
	must(t, os.Chown(fs.Path("proc/42/maps"), plainUser, plainUser))
	if got, detail := Check(o); got != Undumpable || !strings.Contains(detail, "4711") {
		t.Errorf("%v, %q", got, detail)
	}
}

func TestCheckManyFiles(t *testing.T) {
	was := maxDescriptors
	maxDescriptors = 2000
	t.Cleanup(func() { maxDescriptors = was })
	fs, o := quiet(t)
	for i := range maxDescriptors - 2 {
		open(t, fs, 2+i, "x")
	}
	if got, detail := Check(o); got != None {
		t.Errorf("%v, %q", got, detail)
	}
	open(t, fs, maxDescriptors, "x")
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

func init() {
	modes["idle"] = idleMode
	modes["check"] = checkMode
	modes["yama-target"] = yamaTarget
	modes["yama-parent"] = yamaParent
	modes["yama-tracer"] = yamaTracer
}

// plainUser is an account that the machine does not have.
const plainUser = 4711

// idleMode lives until its input ends, as something that may not be touched.
func idleMode(args []string) int {
	fail := func(err error) int {
		fmt.Println("cannot be", args[0]+":", err)
		return 1
	}
	switch args[0] {
	case "plain":
	case "undumpable":
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return fail(err)
		}
	case "filtered":
		if err := filter(); err != nil {
			return fail(err)
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// filter puts all threads under a filter that allows everything.
func filter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	p := unix.SockFprog{Len: 1, Filter: &program[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	if e != 0 {
		return e
	}
	return nil
}

// checkMode says what Check makes of process PID@START, by this user; with a
// third argument under a filter.
func checkMode(args []string) int {
	var id rss.ProcID
	if _, err := fmt.Sscanf(args[0], "%d@%d", &id.PID, &id.Start); err != nil {
		fmt.Println(err)
		return 1
	}
	if len(args) > 1 {
		if err := filter(); err != nil {
			fmt.Println("cannot filter:", err)
			return 1
		}
	}
	r, detail := Check(CheckOptions{Proc: "/proc", ID: id})
	fmt.Println(int(r), detail)
	return 0
}

// idle starts an idleMode, and skips the test where it cannot be.
func idle(t *testing.T, uid int, what string) *helper {
	t.Helper()
	if uid != 0 && os.Geteuid() != 0 {
		t.Skip("only root may change the user")
	}
	h := startHelper(t, uid, "idle", what)
	if h.said != "ready" {
		t.Skip(h.said)
	}
	return h
}

// refusedTo is what Check makes of it in a process of that user.
func refusedTo(t *testing.T, uid int, h *helper, more ...string) (r Refusal, detail string) {
	t.Helper()
	out, err := asMode(uid, "check", append([]string{h.id.String()}, more...)...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	word, detail, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		t.Fatalf("%s", out)
	}
	return Refusal(n), detail
}

// needsYama skips where every process is refused for another reason first.
func needsYama(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && string(b) != "0\n" {
		t.Skipf("ptrace_scope is %s", b)
	}
}

func TestCheckReal(t *testing.T) {
	needsYama(t)
	own := Undumpable
	if os.Geteuid() == 0 {
		own = None // its files are root's anyway: only the tracer can ask it
	}
	for _, c := range []struct {
		what     string
		uid, by  int // 0 for this user
		want     Refusal
		filtered bool // the caller
	}{
		{"plain", 0, 0, None, false},
		{"plain", plainUser, plainUser, None, false},
		{"plain", plainUser, 0, OtherUser, false},
		{"plain", 0, plainUser, OtherUser, false},
		{"undumpable", plainUser, plainUser, Undumpable, false},
		{"undumpable", 0, 0, own, false},
		{"filtered", 0, 0, Seccomp, false},
		{"filtered", plainUser, plainUser, Seccomp, false},
		{"filtered", 0, 0, None, true},
	} {
		t.Run(fmt.Sprintf("%s of %d by %d", c.what, c.uid, c.by), func(t *testing.T) {
			if c.by != 0 && os.Geteuid() != 0 {
				t.Skip("only root may change the user")
			}
			h := idle(t, c.uid, c.what)
			var more []string
			if c.filtered {
				more = []string{"filtered"}
			}
			r, detail := refusedTo(t, c.by, h, more...)
			if r != c.want {
				t.Errorf("%v (%s): %s", r, r.Reason(), detail)
			}
			t.Log(r.Reason(), detail)
		})
	}
}

// Test32Bit: the tracer sees what a program is only when it stands, and lets it go.
func Test32Bit(t *testing.T) {
	needsYama(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("a program for the 386")
	}
	const at = 0x08048000
	code := []byte{
		0x68, 'o', 'k', '\n', 0, // push "ok\n"
		0x89, 0xe1, 0xba, 3, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0xb8, 4, 0, 0, 0, 0xcd, 0x80, // write(1, esp, 3)
		0xba, 1, 0, 0, 0, 0x31, 0xdb, 0xb8, 3, 0, 0, 0, 0xcd, 0x80, // read(0, esp, 1)
		0x31, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80, // exit(0)
	}
	head := elf.Header32{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: 1, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1, Entry: at + 52 + 32,
	}
	copy(head.Ident[:], elf.ELFMAG+string(rune(elf.ELFCLASS32))+string(rune(elf.ELFDATA2LSB))+"\x01")
	size := uint32(52 + 32 + len(code))
	load := elf.Prog32{Type: uint32(elf.PT_LOAD), Vaddr: at, Paddr: at, Filesz: size, Memsz: size, Flags: uint32(elf.PF_R | elf.PF_X), Align: 4096}
	var b bytes.Buffer
	for _, part := range []any{head, load, code} {
		must(t, binary.Write(&b, binary.LittleEndian, part))
	}
	name := filepath.Join(t.TempDir(), "small")
	must(t, os.WriteFile(name, b.Bytes(), 0o755))
	if err := exec.Command(name).Run(); err != nil {
		wardentest.Cannot(t, "run 32-bit programs", err)
	}
	h := startCommand(t, exec.Command(name))
	tr := newTracer(t)
	r := patiently(func() Refusal { return tr.Do(Piece{ID: h.id, Hi: pageBytes}).Refusal })
	if r != Not64Bit {
		t.Errorf("%v", r.Reason())
	}
	letGo(t, h.id.PID, "RSD")
}

const (
	ptraceScope = "/proc/sys/kernel/yama/ptrace_scope"
	yamaData    = "/disk/data" // in the guest, on a file system with a disk below it
	yamaSize    = 16 << 20     // how much of it a process maps
)

// relations are what a process can be to the one that traces it.
var relations = []string{"child", "grandchild", "orphan of init's", "orphan of ours", "sibling"}

// yamaAllows says what Check is to find: the kernel's rule, without the exception
// that it makes for root in 1 and 2.
func yamaAllows(scope int, relation string) Refusal {
	switch {
	case scope >= 2:
		return Yama
	case scope == 1 && (relation == "sibling" || relation == "orphan of init's"):
		return Stranger
	}
	return None
}

// TestYama runs itself in a guest: not every kernel has Yama, and none that runs
// takes the last setting back.
func TestYama(t *testing.T) {
	if os.Getenv("TRIM_TEST_IN_GUEST") == "" {
		out, exit := guest.Run(t, guest.Options{
			Binary: guest.TestBinary(t), Args: []string{"-test.run=^TestYama$", "-test.v"},
			Env: []string{"TRIM_TEST_IN_GUEST=1"}, DiskMB: 64,
		})
		if t.Log(out); exit != 0 || strings.Count(out, "as it should be") != 4*2*len(relations) {
			t.Errorf("in the guest: status %d", exit)
		}
		return
	}
	must(t, os.WriteFile(yamaData, make([]byte, yamaSize), 0o644))
	for scope := range 4 {
		must(t, os.WriteFile(ptraceScope, fmt.Append(nil, scope), 0))
		for _, uid := range []int{1000, 0} {
			sibling := asMode(uid, "yama-target")
			stdout, err := sibling.StdoutPipe()
			must(t, err)
			must(t, sibling.Start())
			pid, err := yamaReady(stdout)
			must(t, err)
			out, err := asMode(uid, "yama-tracer", strconv.Itoa(scope), strconv.Itoa(pid)).Output()
			if t.Logf("scope %d, user %d:\n%s", scope, uid, out); err != nil {
				t.Error(err)
			}
			_ = sibling.Process.Kill()
			_ = sibling.Wait()
		}
	}
}

// yamaTarget maps the file, touches it, says its PID and sleeps: in futex, as
// the threads of a Go program do.
func yamaTarget([]string) int {
	f, err := os.Open(yamaData)
	if err != nil {
		return complain(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, yamaSize, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return complain(err)
	}
	sum := byte(0)
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum |= b[i]
	}
	fmt.Println(os.Getpid(), sum)
	time.Sleep(time.Hour)
	return 0
}

// yamaParent starts a target, and leaves it behind or stays.
func yamaParent(args []string) int {
	cmd := asMode(0, "yama-target")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return complain(err)
	}
	if args[0] == "stay" {
		_ = cmd.Wait()
	}
	return 0
}

// yamaTracer is given ptrace_scope and the PID of a sibling. It looks at a process of each
// relation, and trims it.
func yamaTracer(args []string) (code int) {
	scope, err1 := strconv.Atoi(args[0])
	sibling, err2 := strconv.Atoi(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return complain(err)
	}
	tracer := NewTracer()
	defer tracer.Close()
	for _, relation := range relations {
		pid, parent, end := sibling, os.Getppid(), func() {}
		var err error
		if relation != "sibling" {
			pid, parent, end, err = yamaStart(relation)
		}
		if err == nil {
			err = yamaTry(tracer, scope, relation, pid, parent)
			end()
		}
		if err != nil {
			code = complain(fmt.Errorf("%s: %w", relation, err))
		} else {
			fmt.Println(relation + ": as it should be")
		}
	}
	return code
}

// yamaStart starts a target below us. Where something fails the guest ends, and
// what was started with it.
func yamaStart(relation string) (pid, parent int, end func(), err error) {
	cmd, subreaper := asMode(0, "yama-parent", "leave"), 0
	switch relation {
	case "child":
		cmd = asMode(0, "yama-target")
	case "grandchild":
		cmd = asMode(0, "yama-parent", "stay")
	case "orphan of ours":
		subreaper = 1
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(subreaper), 0, 0, 0)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		pid, err = yamaReady(stdout)
	}
	if err != nil {
		return 0, 0, nil, err
	}
	switch relation {
	case "grandchild":
		parent = cmd.Process.Pid
	case "orphan of init's":
		parent = 1
	default:
		parent = os.Getpid()
	}
	if strings.HasPrefix(relation, "orphan") {
		err = cmd.Wait() // it is adopted before its parent's end can be waited for
	}
	return pid, parent, func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = cmd.Wait()
	}, err
}

// yamaTry has Check, Plan and Do say what they make of a process, and compares.
func yamaTry(tracer *Tracer, scope int, relation string, pid, parent int) error {
	s, err := readThreadStatus(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || s.parent != parent {
		return fmt.Errorf("its parent is %d, not %d: %w", s.parent, parent, err)
	}
	pieces, err := piecesOf(pid, yamaData)
	if err != nil || len(pieces) != 1 {
		return fmt.Errorf("%d pieces: %w", len(pieces), err)
	}
	o := CheckOptions{Proc: "/proc", ID: pieces[0].ID}
	before, err1 := yamaResident(pid)
	var plan Target
	check := patiently(func() Refusal { r, _ := Check(o); return r })
	planned := patiently(func() Refusal { plan = new(Planner).Plan(o); return plan.Refusal })
	done := patiently(func() Refusal { return tracer.Do(pieces[0]).Refusal })
	after, err2 := yamaResident(pid)
	s, err3 := readThreadStatus(fmt.Sprintf("/proc/%d/status", pid))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	want := yamaAllows(scope, relation)
	do := want
	if want == Stranger {
		do = Undumpable // the tracer cannot know which rule it was
	}
	left := before
	if want == None {
		left = 0
	}
	switch {
	case check != want || planned != want || (len(plan.Mappings) == 1) != (want == None):
		return fmt.Errorf("check said %v, plan %v and %d mappings, want %v", check.Reason(), planned.Reason(), len(plan.Mappings), want.Reason())
	case done != do: // the capability that would let root in is laid down
		return fmt.Errorf("do said %v, want %v", done.Reason(), do.Reason())
	case before != yamaSize>>10 || after != left:
		return fmt.Errorf("%d kB were resident, and %d are", before, after)
	case s.tracer != 0 || s.state == 't' || s.state == 'T':
		return fmt.Errorf("it was not let go: state %c, traced by %d", s.state, s.tracer)
	}
	return nil
}

// patiently asks until the moment is not a bad one: the processor is emulated,
// and shared.
func patiently(ask func() Refusal) Refusal {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if r := ask(); !r.Passing() || time.Now().After(deadline) {
			return r
		}
	}
}

// yamaResident reads how much of the file is resident in a process, in kB.
func yamaResident(pid int) (kb int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, err
	}
	_, record, found := strings.Cut(string(b), yamaData+"\n")
	if !found {
		return 0, fmt.Errorf("process %d does not map %s", pid, yamaData)
	}
	_, resident, _ := strings.Cut(record, "\nRss:")
	_, err = fmt.Sscanf(resident, "%d kB", &kb)
	return kb, err
}

// yamaReady waits until a target says that it sleeps, or is about to.
func yamaReady(stdout io.Reader) (pid int, err error) {
	var sum int
	_, err = fmt.Fscan(stdout, &pid, &sum)
	return pid, err
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, os.Getenv("TRIM_TEST_MODE")+":", err)
	return 1
}
