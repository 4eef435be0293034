package trim

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
)

const (
	ptraceScope = "/proc/sys/kernel/yama/ptrace_scope"
	yamaData    = "/disk/data" // in the guest, on a file system with a disk below it
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
		if t.Log(out); exit != 0 || strings.Count(out, "--- PASS: TestYama/") != 4*2*len(relations) {
			t.Errorf("in the guest: status %d", exit)
		}
		return
	}
	must(t, os.WriteFile(yamaData, make([]byte, yamaSize), 0o644))
	for scope := range 4 {
		must(t, os.WriteFile(ptraceScope, fmt.Append(nil, scope), 0))
		for _, uid := range []int{1000, 0} {
			said := yamaLook(t, uid)
			for _, relation := range relations {
				t.Run(fmt.Sprintf("scope %d, user %d, %s", scope, uid, relation), func(t *testing.T) {
					i := slices.IndexFunc(said, func(l yamaLine) bool { return l.relation == relation })
					if i < 0 {
						t.Fatal("nothing was said of it")
					}
					said[i].judge(t, scope)
				})
			}
		}
	}
}

func (l yamaLine) judge(t *testing.T, scope int) {
	t.Logf("%+v", l)
	if want := yamaAllows(scope, l.relation); l.check != want {
		t.Errorf("Check said %v, want %v", l.check.Reason(), want.Reason())
	}
	if l.plan != l.check || (l.mappings == 1) != (l.plan == None) {
		t.Errorf("Plan said %v and %d mappings, Check %v", l.plan.Reason(), l.mappings, l.check.Reason())
	}
	// The capability that would let root in is laid down.
	want := yamaAllows(scope, l.relation)
	if want == Stranger {
		want = Undumpable // the tracer cannot know which rule it was
	}
	if l.do != want {
		t.Errorf("Do said %v, want %v", l.do.Reason(), want.Reason())
	}
	if fell := l.before - l.after; want == None && l.after != 0 || want != None && fell != 0 || l.before != yamaSize>>10 {
		t.Errorf("%d kB were resident, and %d are", l.before, l.after)
	}
	if l.check == None && l.do != None {
		t.Error("Check allowed what could not be done")
	}
}

// yamaLine is what the tracer said of one process.
type yamaLine struct {
	relation        string
	check, plan, do Refusal
	mappings        int
	before, after   int // kB of the file that are resident
}

// yamaLook has a user trace a process of each relation.
func yamaLook(t *testing.T, uid int) (said []yamaLine) {
	t.Helper()
	sibling := asMode(uid, "yama-target")
	stdout, err := sibling.StdoutPipe()
	must(t, err)
	must(t, sibling.Start())
	defer func() {
		_ = sibling.Process.Kill()
		_ = sibling.Wait()
	}()
	pid, err := yamaReady(stdout)
	must(t, err)
	out, err := asMode(uid, "yama-tracer", fmt.Sprint(pid)).Output()
	if err != nil {
		t.Fatalf("the tracer of user %d: %v: %s", uid, err, out)
	}
	for line := range strings.Lines(string(out)) {
		var l yamaLine
		if _, err := fmt.Sscanf(line, "%q %d %d %d %d %d %d\n", &l.relation, &l.check, &l.plan, &l.mappings, &l.do, &l.before, &l.after); err != nil {
			t.Fatalf("the tracer of user %d: %q: %v", uid, line, err)
		}
		said = append(said, l)
	}
	return said
}

// yamaSize is how much of a file a process maps.
const yamaSize = 16 << 20

func init() {
	modes["yama-target"] = yamaTarget
	modes["yama-parent"] = yamaParent
	modes["yama-tracer"] = yamaTracer
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

// yamaTracer is given the PID of a sibling.
func yamaTracer(args []string) int {
	sibling, err := strconv.Atoi(args[0])
	if err != nil {
		return complain(err)
	}
	tracer := NewTracer()
	defer tracer.Close()
	for _, relation := range relations {
		if err := yamaTry(tracer, relation, sibling); err != nil {
			return complain(fmt.Errorf("%s: %w", relation, err))
		}
	}
	return 0
}

// yamaTry has a process of that relation, and looks at it and trims it.
func yamaTry(tracer *Tracer, relation string, sibling int) error {
	pid, parent := sibling, os.Getppid()
	if relation != "sibling" {
		var end func()
		var err error
		if pid, parent, end, err = yamaStart(relation); err != nil {
			return err
		}
		defer end()
	}
	s, err := readThreadStatus(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	if s.parent != parent {
		return fmt.Errorf("its parent is %d, not %d", s.parent, parent)
	}
	return yamaTrim(tracer, relation, pid)
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
	if err != nil {
		return 0, 0, nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(subreaper), 0, 0, 0); err != nil {
		return 0, 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, nil, err
	}
	if pid, err = yamaReady(stdout); err != nil {
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
		// It is adopted before its parent's end can be waited for.
		if err := cmd.Wait(); err != nil {
			return 0, 0, nil, err
		}
	}
	return pid, parent, func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = cmd.Wait()
	}, nil
}

func yamaTrim(tracer *Tracer, relation string, pid int) error {
	pieces, err := piecesOf(pid, yamaData)
	if err != nil {
		return err
	}
	if len(pieces) != 1 {
		return fmt.Errorf("%d pieces", len(pieces))
	}
	o := CheckOptions{Proc: "/proc", ID: pieces[0].ID}
	before, err := yamaResident(pid)
	if err != nil {
		return err
	}
	var plan Target
	check := patiently(func() Refusal { r, _ := Check(o); return r })
	planned := patiently(func() Refusal {
		plan = new(Planner).Plan(o)
		return plan.Refusal
	})
	done := patiently(func() Refusal { return tracer.Do(pieces[0]).Refusal })
	after, err := yamaResident(pid)
	if err != nil {
		return err
	}
	if s, err := readThreadStatus(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
		return err
	} else if s.tracer != 0 || s.state == 't' || s.state == 'T' {
		return fmt.Errorf("it was not let go: state %c, traced by %d", s.state, s.tracer)
	}
	fmt.Printf("%q %d %d %d %d %d %d\n", relation, check, planned, len(plan.Mappings), done, before, after)
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
