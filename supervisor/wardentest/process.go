package wardentest

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Talk is a process that a test talks to by its standard input and output.
type Talk struct {
	t      testing.TB
	Cmd    *exec.Cmd
	In     *os.File
	Lines  *bufio.Scanner // of its standard output
	Stderr Text
}

// StartTalk starts one. At the end of the test its input is closed, and its end waited for.
func StartTalk(t testing.TB, cmd *exec.Cmd) *Talk {
	t.Helper()
	r, w, err := os.Pipe()
	NoError(t, err)
	p := &Talk{t: t, Cmd: cmd, In: w}
	cmd.Stdin, cmd.Stderr = r, &p.Stderr
	out, err := cmd.StdoutPipe()
	NoError(t, err)
	p.Lines = bufio.NewScanner(out)
	NoError(t, cmd.Start())
	r.Close()
	t.Cleanup(func() {
		w.Close()
		late := time.AfterFunc(rsstest.Patience, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
	})
	return p
}

// Hear is the next line that it says.
func (p *Talk) Hear() string {
	p.t.Helper()
	if !p.Lines.Scan() {
		p.t.Fatalf("the process has ended\n%s", &p.Stderr)
	}
	return p.Lines.Text()
}

// EndsWith closes its input and wants its exit status, 128 + N after signal N.
func (p *Talk) EndsWith(status int) {
	p.t.Helper()
	p.In.Close()
	p.Cmd.Wait()
	if got := ExitStatus(p.Cmd.ProcessState); got != status {
		p.t.Errorf("it ended with %v, want %d\n%s", p.Cmd.ProcessState, status, &p.Stderr)
	}
}

// PID is its number, as a word.
func (p *Talk) PID() string { return strconv.Itoa(p.Cmd.Process.Pid) }

// puppetJob does as each line of its stdin says, answers each with a line, and
// ends with status 7 when Puppet to, or when its stdin ends.
//
//go:embed testdata/puppet.py
var puppetJob string

// Puppet is a Python that does what a test says.
type Puppet struct{ *Talk }

// StartPuppet starts one as a user.
func StartPuppet(t *testing.T, uid int, env ...string) *Puppet {
	t.Helper()
	NeedPython(t)
	cmd := exec.Command(Python, "-c", puppetJob)
	cmd.Env = Env(env...)
	if As(uid, cmd); uid != os.Geteuid() {
		cmd.Dir = "/"
	}
	p := &Puppet{StartTalk(t, cmd)}
	p.Hear()
	return p
}

// Do has it do something, and is what it answers.
func (p *Puppet) Do(what string) string {
	p.t.Helper()
	fmt.Fprintln(p.In, what)
	return p.Hear()
}

// End ends the process, and wants the status that it gives itself.
func (p *Puppet) End() {
	p.t.Helper()
	fmt.Fprintln(p.In, "end")
	p.EndsWith(7)
}

// Terminal is a program on a terminal of 80 columns and 24 lines.
type Terminal struct {
	t     *testing.T
	File  *os.File
	Cmd   *exec.Cmd
	Shown Text
	read  chan struct{} // closed when nothing more comes
}

// OnTerminal runs a command on one.
func OnTerminal(t *testing.T, cmd *exec.Cmd) *Terminal {
	t.Helper()
	s := &Terminal{t: t, Cmd: cmd, read: make(chan struct{})}
	var err error
	if s.File, err = pty.StartWithSize(s.Cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.read)
		io.Copy(&s.Shown, s.File) // ends with the terminal
	}()
	t.Cleanup(func() {
		s.Cmd.Process.Kill()
		s.File.Close()
	})
	return s
}

// Await waits until it shows a text.
func (s *Terminal) Await(text string) {
	s.t.Helper()
	s.Shown.Await(s.t, text, 1)
}

// Send types.
func (s *Terminal) Send(text string) {
	s.t.Helper()
	if _, err := s.File.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Ended waits for the end, and is how that was and all that was shown.
func (s *Terminal) Ended() (string, string) {
	s.t.Helper()
	_ = s.Cmd.Wait() // ProcessState says how it ended
	<-s.read
	ws, _ := s.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return "signal " + strconv.Itoa(int(ws.Signal())), s.Shown.String()
	}
	return "exit " + strconv.Itoa(ws.ExitStatus()), s.Shown.String()
}

// AttachAs has root attach as another user.
func AttachAs(t *testing.T, uid int) func(*exec.Cmd) {
	t.Helper()
	dir := OpenDir(t)
	return func(cmd *exec.Cmd) {
		As(uid, cmd)
		cmd.Args[3] = filepath.Join(dir, "events")
	}
}

// Attach is an attach that runs.
type Attach struct {
	t      *testing.T
	Cmd    *exec.Cmd
	Stderr Text
	Events string
}

// StartAttach attaches and waits until that is done.
func StartAttach(t *testing.T, change func(*exec.Cmd), args ...string) *Attach {
	t.Helper()
	w := &Attach{t: t, Events: filepath.Join(t.TempDir(), "events")}
	w.Cmd = exec.Command(Program(t, Rsswarden), append([]string{"attach", "--events", w.Events}, args...)...)
	w.Cmd.Env = Env()
	w.Cmd.Stderr = &w.Stderr
	if change != nil {
		change(w.Cmd)
	}
	w.Events = w.Cmd.Args[3]
	if err := w.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Cmd.Process.Kill() })
	w.Await("watching ")
	return w
}

// Await waits for a line with that text.
func (w *Attach) Await(text string) {
	w.t.Helper()
	w.Stderr.Await(w.t, text, 1)
}

// Ended waits for the end and returns the events.
func (w *Attach) Ended(code int) map[event.Name][]map[string]any {
	w.t.Helper()
	w.Cmd.Wait()
	if got := w.Cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("attach ended with %v, want %d\n%s", w.Cmd.ProcessState, code, w.Stderr.String())
	}
	return Events(w.t, w.Events)
}

// Reading returns the reading of a limit that has the most used: the last may be
// of a process that is on its way out.
func Reading(t *testing.T, all map[event.Name][]map[string]any, name event.LimitName, level string) map[string]any {
	t.Helper()
	var found map[string]any
	for _, e := range append(all[event.NameStart], all[event.NameSample]...) {
		for _, l := range e["limits"].([]any) {
			l := l.(map[string]any)
			if at, _ := l["level"].(string); l["limit"] == string(name) && (level == "" || strings.HasSuffix(at, level)) &&
				(found == nil || l["used_bytes"].(float64) >= found["used_bytes"].(float64)) {
				found = l
			}
		}
	}
	if found == nil {
		t.Fatalf("no limit %s at %q in %v", name, level, all[event.NameStart])
	}
	return found
}

// Beside is the way into a job that the hint of attach names, with the words ID
// and NODE in it.
func Beside(t *testing.T) []string {
	t.Helper()
	_, errs, _ := Output(Program(t, Rsswarden), "attach", "--job", "4294967000")
	_, command, found := strings.Cut(errs, "; on one of them: ")
	command, _, ok := strings.Cut(command, " rsswarden attach --job 4294967000\n")
	if !found || !ok {
		t.Fatalf("the hint is\n%s", errs)
	}
	return strings.Fields(strings.ReplaceAll(command, "4294967000", "ID"))
}

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
