package trim

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

func init() {
	modes["idle"] = idleMode
	modes["check"] = checkMode
	modes["seize"] = seizeMode
}

// plainUser is nobody whom the machine knows.
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
	case "many":
		up := make(chan bool)
		for range MaxThreads {
			go func() {
				runtime.LockOSThread()
				up <- true
				select {}
			}()
		}
		for range MaxThreads {
			<-up
		}
	case "vfork":
		fmt.Println("ready")
		// A copy of the memory, not the memory itself: nothing of Go runs in the
		// child, which keeps this thread waiting until it reads the end of input.
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e == 0 && pid == 0 {
			var b [1]byte
			_, _, _ = unix.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return int(e)
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

// seizeMode traces a process until its input ends.
func seizeMode(args []string) int {
	runtime.LockOSThread()
	pid, _ := strconv.Atoi(args[0])
	if e := ptrace(unix.PTRACE_SEIZE, pid, 0, 0); e != 0 {
		fmt.Println("cannot seize:", e)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// idle starts an idleMode, and skips the test where it cannot be.
func idle(t *testing.T, uid int, what string) *helper {
	t.Helper()
	if uid != 0 && os.Geteuid() != 0 {
		t.Skip("only root may become somebody else")
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
	c := exec.Command("/proc/self/exe", append([]string{h.id.String()}, more...)...)
	c.Env, c.Stderr = append(os.Environ(), "TRIM_TEST_MODE=check"), os.Stderr
	c.SysProcAttr = credential(uid)
	out, err := c.Output()
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

func checkHere(id rss.ProcID) (Refusal, string) { return Check(CheckOptions{Proc: "/proc", ID: id}) }

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
		filtered bool // the one who asks
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
		{"many", 0, 0, Crowded, false},
	} {
		t.Run(fmt.Sprintf("%s of %d by %d", c.what, c.uid, c.by), func(t *testing.T) {
			if c.by != 0 && os.Geteuid() != 0 {
				t.Skip("only root may become somebody else")
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

func TestCheckStoppedAndTraced(t *testing.T) {
	needsYama(t)
	h := idle(t, 0, "plain")
	if err := unix.Kill(h.id.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(h.id.PID, unix.SIGCONT) })
	comesTo(t, h, Stopped)
	if err := unix.Kill(h.id.PID, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	comesTo(t, h, None)
	tracer := startHelper(t, 0, "seize", strconv.Itoa(h.id.PID))
	if tracer.said != "ready" {
		t.Skip(tracer.said)
	}
	if r, detail := checkHere(h.id); r != Traced || !strings.Contains(detail, strconv.Itoa(tracer.id.PID)) {
		t.Errorf("%v: %s", r, detail)
	}
	tracer.End()
	comesTo(t, h, None)
	h.End()
	if r, detail := checkHere(h.id); r != Vanished {
		t.Errorf("%v: %s", r, detail)
	}
}

func comesTo(t *testing.T, h *helper, want Refusal) {
	t.Helper()
	var r Refusal
	var detail string
	until(t, string(want.Reason()), func() bool {
		r, detail = checkHere(h.id)
		return r == want
	})
	t.Logf("%s %s", r.Reason(), detail)
}

func TestCheckWaiting(t *testing.T) {
	needsYama(t)
	comesTo(t, idle(t, 0, "vfork"), Waiting)
}

// A zombie is one whose parent has not asked yet.
func TestCheckZombie(t *testing.T) {
	h := idle(t, 0, "plain")
	h.In.Close()
	comesTo(t, h, Vanished)
}

func TestCheck32Bit(t *testing.T) {
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
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(name, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(name).Run(); err != nil {
		t.Skip("the kernel runs no 32-bit programs: ", err)
	}
	h := startCommand(t, exec.Command(name))
	if r, detail := checkHere(h.id); r != Not64Bit {
		t.Errorf("%v: %s", r, detail)
	}
}

func TestPlanReal(t *testing.T) {
	needsYama(t)
	small, large := sparse(t, 6*rss.MiB), sparse(t, 32*rss.MiB)
	h, want := startMap(t, large, [2]rss.Bytes{rss.MiB, 16 * rss.MiB})
	p, err := Plan(CheckOptions{Proc: "/proc", ID: h.id})
	if err != nil || p.Refusal != None || len(p.Mappings) != 1 || p.Mappings[0].whole(h.id) != want.whole(h.id) || p.Mappings[0].Resident != want.Resident || want.Resident < 16*rss.MiB {
		t.Errorf("%+v, %v", p, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(large, &st); err != nil {
		t.Fatal(err)
	}
	if want.Inode != st.Ino || want.Hi-want.Lo != uint64(32*rss.MiB) || want.Offset != 0 {
		t.Errorf("%+v, and inode %d", want, st.Ino)
	}
	h, _ = startMap(t, small, [2]rss.Bytes{0, 6 * rss.MiB})
	if err := os.Remove(small); err != nil {
		t.Fatal(err)
	}
	if p, err := Plan(CheckOptions{Proc: "/proc", ID: h.id}); err != nil || len(p.Mappings) != 1 || p.Mappings[0].Path != small+" (deleted)" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestPlanner: what may be trimmed is asked once for each mapping, and what is
// resident each time.
func TestPlanner(t *testing.T) {
	needsYama(t)
	if !hasScan(t) {
		t.Skip("the kernel has no PAGEMAP_SCAN")
	}
	h, m := startMap(t, sparse(t, 32*rss.MiB), [2]rss.Bytes{0, 16 * rss.MiB})
	o := CheckOptions{Proc: "/proc", ID: h.id}
	var p Planner
	resident := func() rss.Bytes {
		t.Helper()
		got, err := p.Plan(o)
		if err != nil || got.Refusal != None || len(got.Mappings) > 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(got.Mappings) == 0 {
			return 0
		}
		return got.Mappings[0].Resident
	}
	if got := resident(); got < 16*rss.MiB {
		t.Fatalf("%v are resident", got)
	}
	known := p.judged[h.id].may
	if may, ok := known[m.whole(h.id)]; !ok || !may {
		t.Fatalf("%+v", known)
	}
	known[m.whole(h.id)] = false
	if got := resident(); got != 0 {
		t.Errorf("asked again: %v", got)
	}
	gone := rss.ProcID{PID: 1 << 23}
	p.judged[gone] = judgement{at: time.Now().Add(-2 * judgedFor)}
	p.judged[h.id] = judgement{time.Now().Add(-judgedFor), known}
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident, asked again after a minute", got)
	}
	if _, kept := p.judged[gone]; kept {
		t.Error("what has ended is kept")
	}
	// A mapping that is not known has all be asked.
	known = p.judged[h.id].may
	delete(known, m.whole(h.id))
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident of what is new", got)
	}
	tracer := NewTracer()
	defer tracer.Close()
	pieces, err := Pieces("/proc", h.id, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range pieces {
		until(t, "a trim", func() bool { return tracer.Do(piece.Piece).Refusal == None })
	}
	if got := resident(); got != 0 {
		t.Errorf("%v are resident after a trim", got)
	}
}
