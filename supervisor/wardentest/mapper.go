package wardentest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// MapJob maps a file, touches all of it, and tells its checksum whenever it is
// asked to. Its first thread sleeps in futex(2), or on request in read(2), from which no
// thread can be borrowed.
//
//go:embed testdata/map.py
var MapJob string

// Mapper is a process that maps a file of 64 MiB and knows nothing of us.
type Mapper struct {
	*Talk
	sum string
}

const MappedBytes = 64 << 20

// MapFile makes such a file, on no file system whose pages cannot leave.
func MapFile(t *testing.T) string {
	t.Helper()
	f, err := os.CreateTemp("", "rsswarden-mapped-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	b := []byte(strings.Repeat(f.Name(), 1<<20/len(f.Name())+1))[:1<<20]
	for range MappedBytes / len(b) {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// StartMapper starts one that sleeps in futex or read, by way of a command in
// front of it.
func StartMapper(t *testing.T, path, sleep string, change func(*exec.Cmd), before ...string) *Mapper {
	t.Helper()
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' {
		t.Skip("Yama lets ancestors alone trace")
	}
	if _, err := os.Stat(Python); err != nil {
		t.Skip(err)
	}
	line := append(before, Python, "-c", MapJob, path, sleep)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = Env()
	if change != nil {
		change(cmd)
	}
	m := &Mapper{Talk: StartTalk(t, cmd)}
	m.sum = m.Hear()
	return m
}

// Intact wants the process alive, with the same data.
func (m *Mapper) Intact() {
	m.t.Helper()
	fmt.Fprint(m.In, "?")
	if sum := m.Hear(); sum != m.sum {
		m.t.Errorf("checksum %s, was %s", sum, m.sum)
	}
}

// Status is a line of /proc/PID/status.
func (m *Mapper) Status(name string) string { return StatusLine(m.t, m.Cmd.Process.Pid, name) }

// Resident is its RssFile in bytes.
func (m *Mapper) Resident() int {
	n, err := strconv.Atoi(strings.TrimSuffix(m.Status("RssFile"), " kB"))
	if err != nil {
		m.t.Fatal(err)
	}
	return n << 10
}

// Trimming is what `rsswarden trim --json` printed.
type Trimming struct {
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
