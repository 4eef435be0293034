// Package cgroup2 runs rsswarden end to end where the memory
// controller is cgroup v2, on each kernel that there is a guest of. Which limit
// binds, what is warned of before the kernel kills, what is said of a kill, and
// what a plain user may do have to be the same on all of them; where a kernel
// differs, a case says so.
package cgroup2

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		fmt.Fprintln(os.Stderr, enterNamespace())
		os.Exit(1)
	}
	rsstest.BeEater()
	os.Exit(m.Run())
}

const (
	inGuest = "CGROUP2_TEST_IN_GUEST" // the kernel's version
	// inNamespace has the program started in a cgroup namespace of its own.
	inNamespace = "CGROUP2_TEST_IN_NAMESPACE"
	program     = "/guest/rsswarden"
)

// enterNamespace makes a cgroup namespace and becomes the program that the arguments
// name: it returns only with an error.
func enterNamespace() error {
	runtime.LockOSThread() // the namespace is the thread's
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	os.Unsetenv(inNamespace)
	return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// cases are what runs in each guest, one after the other.
var cases = []struct {
	name string
	run  func(*testing.T)
}{
	{name: "LimitThatBinds", run: limitThatBinds},
	{name: "High", run: high},
	{name: "LoweredLive", run: loweredLive},
	{name: "PageCache", run: pageCache},
	{name: "Swap", run: swap},
	{name: "Namespace", run: namespace},
	{name: "Commit", run: commit},
	{name: "WarnedThenKilled", run: warnedThenKilled},
	{name: "GroupKilled", run: groupKilled}, // memory.oom.group
	{name: "Moved", run: moved},
	{name: "Delegated", run: delegated},
	{name: "RootOwned", run: rootOwned},
	{name: "Statuses", run: statuses},
	{name: "WholeTree", run: wholeTree},
	{name: "Trimmed", run: trimmed},
	{name: "Stalls", run: stalls},
	{name: "ClockSet", run: clockSet},
}

// TestCgroup2 runs itself in a guest of each kernel: one boot for all cases. A
// case is a test here too, by the line that says how it went there.
func TestCgroup2(t *testing.T) {
	if os.Getenv(inGuest) != "" {
		for _, c := range cases {
			t.Run(c.name, c.run)
		}
		return
	}
	onKernels(t, guest.Kernels())
}

// onKernels runs the cases in a guest of each of these kernels.
func onKernels(t *testing.T, kernels []string) {
	tests := guest.TestBinary(t)
	files := map[string]string{program: wardentest.Program(t, wardentest.Static)}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			out, exit := guest.Run(t, guest.Options{
				Kernel: kernel, Binary: tests, Args: []string{"-test.run=^TestCgroup2$", "-test.v"},
				Env: []string{inGuest + "=" + kernel, "LC_ALL=C.UTF-8"}, Files: files, DiskMB: 600, MemMB: 768, Timeout: 5 * time.Minute,
			})
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { judge(t, out, "TestCgroup2/"+c.name) })
			}
			if exit != 0 && !t.Failed() {
				t.Errorf("in the guest: status %d\n%s", exit, out)
			}
		})
	}
}

// judge finds what the guest said of a case.
func judge(t *testing.T, out, name string) {
	_, said, found := strings.Cut(out, "=== RUN   "+name+"\n")
	if !found {
		t.Fatalf("it was not run:\n%s", out)
	}
	said, _, _ = strings.Cut(said, "=== RUN   ")
	result := regexp.MustCompile(`(?m)^ +--- (PASS|FAIL|SKIP): ` + name + ` \(`).FindStringSubmatch(out)
	if result == nil || result[1] != "PASS" {
		t.Errorf("in the guest:\n%s", said)
	}
}
