package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
)

// holdMemory holds as many MiB as each line of its input says, and ends with status 7.
const holdMemory = `
import sys
keep = b""
for line in sys.stdin:
    del keep
    keep = bytearray(int(line) << 20)
    print(int(line), flush=True)
sys.exit(7)
`

// alertRun is a run whose command holds what it is told to.
type alertRun struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  bytes.Buffer
	dir     string // of its record, runtime directory and events
	events  string
	started time.Time
}

// startAlertRun starts the command with a limit of 200 MiB.
func startAlertRun(t *testing.T, env []string, args ...string) *alertRun {
	t.Helper()
	return startAlertRunTo(t, nil, env, args...)
}

// startAlertRunTo has its events go to a file that it has as descriptor 3.
func startAlertRunTo(t *testing.T, third *os.File, env []string, args ...string) *alertRun {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("no /usr/bin/python3")
	}
	// A runtime directory has to be like /tmp on a node.
	dir, err := os.MkdirTemp("", "alerts")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &alertRun{t: t, dir: dir, events: filepath.Join(dir, "events"), started: time.Now()}
	all := append([]string{"run", "--limit", "200M", "--accounting", "rss", "--events", r.events, "--record", filepath.Join(dir, "record")}, args...)
	r.cmd = exec.Command(binary, append(all, "--", "/usr/bin/python3", "-c", holdMemory)...)
	r.cmd.Env = append(append(os.Environ(), "RSSWARDEN_RUNTIME="+dir), env...)
	r.cmd.Stderr = &r.stderr
	if third != nil {
		r.cmd.ExtraFiles = []*os.File{third}
		r.cmd.Args[slices.Index(r.cmd.Args, r.events)] = "/dev/fd/3"
	}
	r.begin()
	return r
}

// begin starts the command. It is ended with the test.
func (r *alertRun) begin() {
	r.t.Helper()
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.in.Close()
			_ = r.cmd.Wait()
		}
	})
}

// hold has the command hold so many MiB.
func (r *alertRun) hold(mib int) {
	r.t.Helper()
	fmt.Fprintln(r.in, mib)
	if line, err := r.out.ReadString('\n'); strings.TrimSpace(line) != strconv.Itoa(mib) {
		r.t.Fatalf("%q, %v\n%s", line, err, r.stderr.String())
	}
}

// end has the command end and returns how long that took.
func (r *alertRun) end() time.Duration {
	r.t.Helper()
	began := time.Now()
	r.in.Close()
	err := r.cmd.Wait()
	took := time.Since(began)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		r.t.Errorf("%v, want the command's exit status 7\n%s", err, r.stderr.String())
	}
	return took
}

// standing asks for the status; nil where nobody answers yet.
func (r *alertRun) standing() *control.Status {
	cmd := exec.Command(binary, "status", "--json")
	cmd.Env = append(os.Environ(), "RSSWARDEN_RUNTIME="+r.dir)
	out, _ := cmd.Output() // one of others' runs may not answer
	var all struct{ Nodes []*control.Status }
	if err := json.Unmarshal(out, &all); err != nil {
		return nil
	}
	for _, st := range all.Nodes {
		if len(st.Ranks) == 1 && st.Ranks[0].Holder == r.cmd.Process.Pid {
			return st // others may run beside it
		}
	}
	return nil
}

// soon waits until something is so.
func soon(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute: not %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freePort is a port of the loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	return promtest.FreeAddr(t)
}

// newAlertmanager starts a real one, which tells the receiver at once of what it is told.
func newAlertmanager(t *testing.T) (*promtest.Server, *promtest.Receiver) {
	t.Helper()
	sink := promtest.NewReceiver(t)
	file := filepath.Join(t.TempDir(), "am.yml")
	config := "route: {receiver: test, group_wait: 100ms, group_interval: 1s, group_by: ['...']}\n" +
		"receivers: [{name: test, webhook_configs: [{url: '" + sink.URL + "', send_resolved: true}]}]\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return promtest.Alertmanager(t, freePort(t), file), sink
}

// TestAlertmanager: a real one hears of rungs that are crossed and of the end, also of
// what was crossed while it was not there.
func TestAlertmanager(t *testing.T) {
	m, sink := newAlertmanager(t)
	var since time.Time
	has := func(status, rung string) bool {
		_, ok := sink.Find(since, status, map[string]string{"rung": rung})
		return ok
	}
	r := startAlertRun(t, nil, "--alert", "http://"+m.Addr, "--at", "none", "--at", "user 80%:warn", "--at", "user 92%:warn")
	r.hold(160)
	crossed := time.Now()
	soon(t, "firing", func() bool { return has("firing", "80%") })
	t.Logf("notified %v after the crossing", time.Since(crossed).Round(time.Millisecond))
	m.Kill()
	r.hold(182)
	soon(t, "tried in vain", func() bool {
		st := r.standing()
		return st != nil && len(st.Alerts) == 1 && st.Alerts[0].Failing && st.Alerts[0].Error == "connection refused" && st.Alerts[0].Untold == 1
	})
	if has("firing", "92%") {
		t.Error("who was killed has told of an alert")
	}
	// It has forgotten all: it sends "resolved" only for what it has sent as firing since.
	since = time.Now()
	m.Start()
	soon(t, "firing after it was killed", func() bool { return has("firing", "80%") && has("firing", "92%") })
	r.end()
	soon(t, "resolved", func() bool { return has("resolved", "80%") && has("resolved", "92%") })
	faults := 0
	for _, e := range events(t, r.events)[event.NameFault] {
		if e["part"] == "alert" {
			faults++
		}
	}
	if faults != 1 {
		t.Errorf("%d faults\n%s", faults, r.stderr.String())
	}
}

// answering is a server that answers every request with a status, after a while.
// It says how often it was asked.
func answering(t *testing.T, code int, after time.Duration) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // or it is not seen that the client goes
		asked.Add(1)
		select {
		case <-time.After(after):
		case <-req.Context().Done():
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(s.CloseClientConnections)
	return s.URL, asked
}

// TestAlertsDelayNothing: whatever a receiver does, the command ends as without it,
// and when; and status says what is wrong.
func TestAlertsDelayNothing(t *testing.T) {
	rungs := []string{"--at", "none", "--at", "user 80%:warn"}
	plain := startAlertRun(t, nil, rungs...)
	plain.hold(160)
	base := plain.end()
	t.Logf("without alerts the end takes %v", base)
	for name, test := range map[string]struct {
		code  int
		after time.Duration
		says  string // as the last failure
	}{
		"hung":    {200, time.Hour, ""},
		"refused": {0, 0, "connection refused"},
		"500":     {500, 0, "HTTP status 500"},
		"400":     {400, 0, "HTTP status 400"},
		"slow":    {200, 5 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := "http://"+freePort(t), new(atomic.Int32)
			if test.code != 0 {
				url, asked = answering(t, test.code, test.after)
			}
			r := startAlertRun(t, nil, append(rungs, "--alert", "alertmanager+"+url, "--alert", "webhook+"+url+"/x")...)
			r.hold(160)
			soon(t, "tried", func() bool {
				st := r.standing()
				if st == nil || len(st.Alerts) != 2 {
					return false
				}
				a := st.Alerts[0]
				return a.Firing == 1 && a.Error == test.says && (test.says == "" && asked.Load() > 0 || a.Failed > 0)
			})
			took := r.end()
			t.Logf("the end takes %v", took)
			if took > base+2*time.Second { // the shortest wait for an answer is longer
				t.Errorf("the end took %v, and %v without alerts\n%s", took, base, r.stderr.String())
			}
		})
	}
}
