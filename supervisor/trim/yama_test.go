package trim

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

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
	if err := os.WriteFile(yamaData, make([]byte, yamaSize), 0o644); err != nil {
		t.Fatal(err)
	}
	for scope := range 4 {
		if err := os.WriteFile(ptraceScope, fmt.Append(nil, scope), 0); err != nil {
			t.Fatal(err)
		}
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
	user := &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	sibling := exec.Command("/proc/self/exe")
	sibling.Env = append(os.Environ(), "TRIM_TEST_MODE=yama-target")
	sibling.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	stdout, err := sibling.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sibling.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sibling.Process.Kill()
		_ = sibling.Wait()
	}()
	pid, err := yamaReady(stdout)
	if err != nil {
		t.Fatal(err)
	}
	tracer := exec.Command("/proc/self/exe", fmt.Sprint(pid))
	tracer.Env = append(os.Environ(), "TRIM_TEST_MODE=yama-tracer")
	tracer.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	out, err := tracer.CombinedOutput()
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
