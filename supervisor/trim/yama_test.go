package trim

import (
	"errors"
	"fmt"
	"io"
	"os"
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
