package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
)

// receiver keeps what a webhook was told: "firing 80%", "resolved 80%".
type receiver struct {
	mu  sync.Mutex
	all []string
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	var m alert.Message
	_ = json.NewDecoder(req.Body).Decode(&m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m.Status+" "+m.Rung)
}

func (r *receiver) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, told := range r.all {
		if told == what {
			return true
		}
	}
	return false
}

// brokenRun is a run with a record, a receiver of alerts, events and a textfile, of
// which some part is going to fail.
type brokenRun struct {
	*alertRun
	bin      string // where its two programs are
	state    string // XDG_STATE_HOME, with its journal
	record   string // … and the full record
	textfile string
	told     *receiver
	daemon   *exec.Cmd
	pids     string // the cgroup that it was started in
	thaw     func() // lets what hangs go on, before what is left is read; or nil
}

// startBroken starts it. prepare may change the command and what lies around it.
func startBroken(t *testing.T, prepare func(*brokenRun)) *brokenRun {
	t.Helper()
	dir, err := os.MkdirTemp("", "broken") // like /tmp on a node
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	told := &receiver{}
	server := httptest.NewServer(told)
	t.Cleanup(server.Close)
	r := &brokenRun{
		alertRun: &alertRun{t: t, dir: filepath.Join(dir, "run"), events: filepath.Join(dir, "events"), started: time.Now()},
		bin:      filepath.Join(dir, "bin"), state: filepath.Join(dir, "state"), record: filepath.Join(dir, "record"), textfile: filepath.Join(dir, "textfile"),
		told: told,
	}
	for _, d := range []string{r.dir, r.bin, r.state, r.record, r.textfile} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{"rsswarden": faulty, "rsswardend": filepath.Join(filepath.Dir(binary), "rsswardend")} {
		if err := os.Link(from, filepath.Join(r.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.cmd = exec.Command(filepath.Join(r.bin, "rsswarden"), "run", "--limit", "200M", "--accounting", "rss", "--interval", "100ms",
		"--at", "none", "--at", "user 80%:warn", "--at", "user 92%:warn", "--alert", server.URL+"/hook",
		"--events", r.events, "--record", r.record, "--textfile", r.textfile, "--", "/usr/bin/python3", "-c", holdMemory)
	r.cmd.Env = append(withoutSlurm(), "RSSWARDEN_RUNTIME="+r.dir, "XDG_STATE_HOME="+r.state, "TMPDIR="+r.dir)
	r.cmd.Stderr = &r.stderr
	if prepare != nil {
		prepare(r)
	}
	r.begin()
	return r
}

// option replaces the value of one.
func (r *brokenRun) option(name, value string) {
	for i, arg := range r.cmd.Args {
		if arg == name {
			r.cmd.Args[i+1] = value
			return
		}
	}
	r.t.Fatalf("no option %s", name)
}

// watcher waits for one that is not was, and returns it.
func (r *brokenRun) watcher(was int) (pid int) {
	r.t.Helper()
	soon(r.t, "a watcher", func() bool {
		for _, pid = range watchers(r.cmd.Process.Pid) {
			if pid != was {
				return true
			}
		}
		return false
	})
	return pid
}

// fault says whether the events tell that this part failed.
func (r *brokenRun) fault(part string) bool {
	return strings.Contains(eventText(r.events), `"event":"fault"`) && strings.Contains(eventText(r.events), `"part":"`+part+`"`)
}

// left is what is left of the run, read as a user does.
type left struct {
	Runs []struct {
		Code      *int
		Decisions int
		Sources   []string
	}
}

// left reads the record and the journal, in one or both.
func (r *brokenRun) left() (l left, text string) {
	r.t.Helper()
	cmd := exec.Command(binary, "report", "--json")
	for _, place := range []string{r.record, filepath.Join(r.state, "rsswarden", "journals")} {
		if names, _ := os.ReadDir(place); len(names) > 0 {
			cmd.Args = append(cmd.Args, place)
		}
	}
	out, errs, _ := output(cmd.Args) // its status says that a record was damaged
	if json.Unmarshal([]byte(out), &l) != nil {
		l.Runs = nil
	}
	return l, out + errs
}
