package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mapJob maps a file, touches all of it, and tells its checksum whenever it is
// asked to. Its first thread sleeps in futex(2), or in read(2) where it is told
// to, which lends nobody its thread.
const mapJob = `
import mmap, os, sys, threading, zlib
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
print(zlib.crc32(m), flush=True)
def serve():
    while os.read(0, 1):
        print(zlib.crc32(m), flush=True)
    os._exit(7)
if sys.argv[2] == "read":
    serve()
threading.Thread(target=serve).start()
threading.Event().wait()
`

// mapper is a process that maps a file of 64 MiB and knows nothing of us.
type mapper struct {
	*told
	sum string
}

const mappedBytes = 64 << 20

// mapFile makes such a file, on no file system whose pages cannot leave.
func mapFile(t *testing.T) string {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(binary), "mapped-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	b := []byte(strings.Repeat(f.Name(), 1<<20/len(f.Name())+1))[:1<<20]
	for range mappedBytes / len(b) {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// startMapper starts one that sleeps in futex or read, by way of a command in
// front of it.
func startMapper(t *testing.T, path, sleep string, change func(*exec.Cmd), before ...string) *mapper {
	t.Helper()
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' {
		t.Skip("Yama lets ancestors alone trace")
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip(err)
	}
	line := append(before, python, "-c", mapJob, path, sleep)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = withoutSlurm()
	if change != nil {
		change(cmd)
	}
	m := &mapper{told: startTalk(t, cmd)}
	m.sum = m.hear()
	return m
}

// intact wants the process alive, with the same data.
func (m *mapper) intact() {
	m.t.Helper()
	fmt.Fprint(m.in, "?")
	if sum := m.hear(); sum != m.sum {
		m.t.Errorf("checksum %s, was %s", sum, m.sum)
	}
}

// status is a line of /proc/PID/status.
func (m *mapper) status(name string) string { return statusOf(m.t, m.cmd.Process.Pid, name) }

func statusOf(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := strings.Cut(string(b), "\n"+name+":")
	v, _, _ = strings.Cut(v, "\n")
	return strings.TrimSpace(v)
}

// resident is its RssFile in bytes.
func (m *mapper) resident() int {
	n, err := strconv.Atoi(strings.TrimSuffix(m.status("RssFile"), " kB"))
	if err != nil {
		m.t.Fatal(err)
	}
	return n << 10
}

// asNobody has a command run as a plain user.
func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// inJobWithoutCgroup has a command run in a job that only its environment names: as a
// plain user, for root does not believe an environment.
func inJobWithoutCgroup(t *testing.T, job string) func(*exec.Cmd) {
	t.Helper()
	dir := openDir(t)
	return func(cmd *exec.Cmd) {
		if os.Geteuid() == 0 {
			asNobody(cmd)
		}
		cmd.Env = append(cmd.Env, "SLURM_JOB_ID="+job, "SLURM_STEP_ID=0", "TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
	}
}

// trimming is what `rsswarden trim --json` printed.
type trimming struct {
	Processes []struct {
		PID     int
		Comm    string
		Mapped  int      `json:"mapped_bytes"`
		Before  *int     `json:"rss_before_bytes"`
		After   *int     `json:"rss_after_bytes"`
		Freed   *int     `json:"freed_bytes"`
		Stop    *float64 `json:"stop_s"`
		Refused *string
		Detail  string
	}
	Dropped []struct {
		Path   string
		Before *int `json:"before_bytes"`
		After  *int `json:"after_bytes"`
		Error  string
	}
}

// trims runs it, and wants the exit status.
func trims(t *testing.T, change func(*exec.Cmd), status int, args ...string) (got trimming, errs string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"trim", "--json"}, args...)...)
	cmd.Env = withoutSlurm()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if change != nil {
		change(cmd)
	}
	out, _ := cmd.Output() // the status is looked at
	if code := cmd.ProcessState.ExitCode(); code != status {
		t.Fatalf("%v, want %d\n%s%s", cmd.ProcessState, status, out, stderr.String())
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s\n%s", err, out, stderr.String())
	}
	return got, stderr.String()
}

// until waits for a condition.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}
