package trim

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	cmd := yamaCommand("yama-target")
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
	s, err := readStanding(fmt.Sprintf("/proc/%d/status", pid))
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
	cmd, subreaper := yamaCommand("yama-parent", "leave"), 0
	switch relation {
	case "child":
		cmd = yamaCommand("yama-target")
	case "grandchild":
		cmd = yamaCommand("yama-parent", "stay")
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
		plan, err = Plan(o)
		return plan.Refusal
	})
	if err != nil {
		return err
	}
	done := patiently(func() Refusal { return tracer.Do(pieces[0]).Refusal })
	after, err := yamaResident(pid)
	if err != nil {
		return err
	}
	if s, err := readStanding(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
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

func yamaCommand(mode string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "TRIM_TEST_MODE="+mode)
	cmd.Stderr = os.Stderr
	return cmd
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
