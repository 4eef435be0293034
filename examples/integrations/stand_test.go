// Package integrations_test runs the examples here under the tools they are for, or,
// without a tool, under a stand-in for it, as docs/integrations.md
// says of each.
package integrations_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const python = "/usr/bin/python3"

// bin is a directory with rsswarden, for PATH.
var bin string

func TestMain(m *testing.M) {
	program, err := wardentest.Find(wardentest.Rsswarden)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin = filepath.Dir(program)
	os.Exit(m.Run())
}

// need skips where a program or a module of Python is missing.
func need(t *testing.T, programs []string, modules ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	for _, name := range modules {
		if out, err := exec.Command(python, "-W", "ignore", "-c", "import "+name).CombinedOutput(); err != nil {
			t.Skipf("%s lacks %s: %s", python, name, bytes.TrimSpace(out))
		}
	}
}

// place is a folder of one test, and the environment of what runs there.
type place struct {
	t   *testing.T
	dir string
	env []string
}

// newPlace makes a folder that has these files of the examples.
func newPlace(t *testing.T, files ...string) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	for _, name := range files {
		p.write(p.file(filepath.Base(name)), p.read(name))
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "RSSWARDEN") || strings.HasPrefix(name, "PYTHON") {
			continue
		}
		p.env = append(p.env, kv)
	}
	state := p.file("state")
	p.env = append(p.env, "PATH="+p.dir+":"+bin+":/usr/bin:/bin", "TMPDIR="+p.dir, "XDG_CACHE_HOME="+p.file("cache"),
		"XDG_STATE_HOME="+state, "HOME="+p.dir, "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1",
		"RSSWARDEN_LIMIT=100G", "RSSWARDEN_INTERVAL=200ms", "RSSWARDEN_EVENTS="+p.file("events"))
	return p
}

func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

// path is the variable PATH.
func (p *place) path() string { return "PATH=" + p.dir + ":" + bin + ":/usr/bin:/bin" }

// running is a command in a place.
type running struct {
	*exec.Cmd
	place          *place
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

// start starts a command, and kills it where the test ends first.
func (p *place) start(words ...string) *running {
	p.t.Helper()
	r := &running{Cmd: exec.Command(words[0], words[1:]...), place: p, done: make(chan struct{})}
	r.Env, r.Dir = p.env, p.dir
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	for _, dir := range []string{p.dir, bin} { // they are on its PATH, not on ours
		if path := filepath.Join(dir, words[0]); r.Err != nil && !strings.Contains(words[0], "/") {
			if _, err := os.Stat(path); err == nil {
				r.Path, r.Err = path, nil
			}
		}
	}
	if err := r.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = r.Wait()
		close(r.done)
	}()
	p.t.Cleanup(func() {
		_ = os.WriteFile(p.file("work/enough"), nil, 0o600)
		select {
		case <-r.done:
		case <-time.After(10 * time.Second):
			_ = r.Process.Kill()
			<-r.done
		}
	})
	return r
}

// ends waits for the command and returns its exit status.
func (r *running) ends() int {
	r.place.t.Helper()
	select {
	case <-r.done:
	case <-time.After(3 * time.Minute): // three processes that import PyTorch, beside other tests
		_ = r.Process.Kill()
		<-r.done
		r.place.t.Fatalf("%v still ran after three minutes\n%s%s", r.Args, &r.stdout, &r.stderr)
	}
	return r.ProcessState.ExitCode()
}

// event waits for an event with these values, told as "event=loader what=hello", and
// returns it.
func (r *running) event(want string) map[string]any {
	p := r.place
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		over := false
		select {
		case <-r.done:
			over = true
		default:
		}
		for _, e := range p.events() {
			if matches(e, want) {
				return e
			}
		}
		if over || time.Now().After(deadline) {
			p.t.Fatalf("no event %s; over: %v\n%s%s", want, over, &r.stdout, &r.stderr)
		}
	}
}

func matches(e map[string]any, want string) bool {
	for pair := range strings.FieldsSeq(want) {
		name, value, _ := strings.Cut(pair, "=")
		if fmt.Sprint(e[name]) != value {
			return false
		}
	}
	return true
}

// events are those so far; the last line may be being written.
func (p *place) events() (all []map[string]any) {
	b, err := os.ReadFile(p.file("events"))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(b) {
		var e map[string]any
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// read returns the text of a file.
func (p *place) read(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// write makes a program, with the folders above it.
func (p *place) write(name, text string) {
	p.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
		p.t.Fatal(err)
	}
}

// enough has what waits for work/enough end.
func (p *place) enough() {
	p.t.Helper()
	p.write(p.file("work/enough"), "")
}

// task waits for the rsswarden that srun started below the command, and returns its PID.
func (r *running) task() int {
	r.place.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out, _ := exec.Command("ps", "-e", "-o", "pid=,ppid=,comm=").Output()
		below := map[int]bool{r.Process.Pid: true} // parents come first, but where PIDs went round
		for line := range strings.Lines(string(out)) {
			var pid, parent int
			var comm string
			if _, err := fmt.Sscan(line, &pid, &parent, &comm); err != nil || !below[parent] {
				continue
			}
			if comm == "rsswarden" {
				return pid
			}
			below[pid] = true
		}
		if time.Now().After(deadline) {
			r.place.t.Fatalf("no rsswarden below %d:\n%s", r.Process.Pid, out)
		}
	}
}
