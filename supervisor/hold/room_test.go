package hold

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The Go runtime ends the process where it gets too little. The command must
// have been executed by then, with all that a bare one inherits.
func TestNoRoom(t *testing.T) {
	for _, limit := range []string{"-n 13", "-n 16", "-v 100000", "-v 600000", "-v 1200000", "-d 60000"} {
		t.Run(limit, func(t *testing.T) {
			show := func(prefix ...string) []string {
				argv := append([]string{"-c", "trap '' USR1; ulimit " + limit + `; exec "$@" 3</dev/null 0<&-`, "sh"}, append(prefix, probe, "twin", "/dev/stdout")...)
				cmd := exec.Command("sh", argv...)
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%q: %v", prefix, err)
				}
				if !strings.Contains(string(out), fmt.Sprintf("\npid %d\n", cmd.Process.Pid)) {
					t.Errorf("%q: it ran as a child", prefix)
				}
				var lines []string
				for l := range strings.Lines(string(out)) {
					lines = append(lines, l)
				}
				return normal(lines)
			}
			compare(t, show(), show(self, "run", "--quiet", "--limit", "3G", "--"))
		})
	}
}

func TestNoRoomStatus(t *testing.T) {
	for _, test := range []struct {
		argv []string
		code int
		says string
	}{
		{[]string{"--limit=3G", "sh", "-c", "exit 5"}, 5, "there is no room beside it, too little is left of: open files (ulimit -n)"},
		{[]string{"--", "/no/such/file"}, 127, "cannot start /no/such/file"},
		{[]string{"--", "/etc/passwd"}, 126, "cannot start /etc/passwd"},
	} {
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 8; exec "$@"`, "sh", self, "run"}, test.argv...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if s := waitStatus(t, cmd); s.ExitStatus() != test.code || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: got %v, want %d with %q; stderr: %s", test.argv, s, test.code, test.says, &stderr)
		}
	}
}

func TestNoRoomForGo(t *testing.T) {
	cmd := exec.Command("sh", "-c", `ulimit -v 900000; exec "$@"`, "sh", self, "limits")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := "error: too little address space is left (ulimit -v): 1400 MiB are needed\nhint: ulimit -v unlimited, where that is allowed\n"
	if s := waitStatus(t, cmd); s.ExitStatus() != 1 || stderr.String() != want {
		t.Errorf("%v, stderr: %s", s, &stderr)
	}
}

// Slurm's VSizeFactor leaves a limit in proportion to RLIMIT_RSS as RLIMIT_AS,
// and sums us with the job. A user's own ulimit -v counts each process alone.
func TestNoRoomInASum(t *testing.T) {
	const says = "too little is left of: virtual memory, which Slurm sums (VSizeFactor)"
	for _, test := range []struct {
		limits string
		job    string
		want   bool
	}{
		{"-m 1280000 -v 5120000", "7", true},
		{"-m 1280000 -v 1945600", "7", true},
		{"-m 1280000 -v 5120000", "", false},
		{"-m 1280000 -v 5000000", "7", false},
		{"-v 5120000", "7", false},
		{"-m 33554432 -v 134217728", "7", false}, // 128 GiB: ours is little beside it
	} {
		set := strings.ReplaceAll(test.limits, " -v", " && ulimit -v")
		cmd := exec.Command("sh", "-c", "ulimit "+set+` && exec "$@"`, "sh", self, "run", "--", "true")
		cmd.Env = append(cmd.Environ(), "SLURM_JOB_ID="+test.job)
		if test.job == "" {
			cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "SLURM_JOB_ID=") })
		}
		// The holder of these tests takes no "--": it ends at once.
		out, err := cmd.CombinedOutput()
		if got := err == nil && strings.Contains(string(out), says); got != test.want {
			t.Errorf("%s in job %q: executed in place %v, want %v: %v\n%s", test.limits, test.job, got, test.want, err, out)
		}
	}
}
