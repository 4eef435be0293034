package run

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// startAlertRun starts the command with a limit of 200 MiB.
func startAlertRun(t *testing.T, env []string, args ...string) *e2etest.HeldRun {
	t.Helper()
	return startAlertRunTo(t, nil, env, args...)
}

// startAlertRunTo has its events go to a file that it has as descriptor 3.
func startAlertRunTo(t *testing.T, third *os.File, env []string, args ...string) *e2etest.HeldRun {
	t.Helper()
	wardentest.NeedPython(t)
	// A runtime directory has to be like /tmp on a node.
	dir, err := os.MkdirTemp("", "alerts")
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &e2etest.HeldRun{T: t, Dir: dir, Events: filepath.Join(dir, "events"), Started: time.Now()}
	all := append([]string{"run", "--limit", "200M", "--accounting", "rss", "--events", r.Events, "--record", filepath.Join(dir, "record")}, args...)
	r.Cmd = exec.Command(binary, append(all, "--", "/usr/bin/python3", "-c", e2etest.HoldMemory)...)
	r.Cmd.Env = append(append(os.Environ(), "RSSWARDEN_RUNTIME="+dir), env...)
	r.Cmd.Stderr = &r.Stderr
	if third != nil {
		r.Cmd.ExtraFiles = []*os.File{third}
		r.Cmd.Args[slices.Index(r.Cmd.Args, r.Events)] = "/dev/fd/3"
	}
	r.Begin()
	return r
}

// newAlertmanager starts a real one, which notifies the receiver at once.
func newAlertmanager(t *testing.T) (*promtest.Server, *promtest.Receiver) {
	t.Helper()
	sink := promtest.NewReceiver(t)
	file := filepath.Join(t.TempDir(), "am.yml")
	config := "route: {receiver: test, group_wait: 100ms, group_interval: 1s, group_by: ['...']}\n" +
		"receivers: [{name: test, webhook_configs: [{url: '" + sink.URL + "', send_resolved: true}]}]\n"
	wardentest.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return promtest.Alertmanager(t, promtest.FreeAddr(t), file), sink
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
	r.Hold(160)
	crossed := time.Now()
	wardentest.Until(t, "firing", func() bool { return has("firing", "80%") })
	t.Logf("notified %v after the crossing", time.Since(crossed).Round(time.Millisecond))
	m.Kill()
	r.Hold(182)
	wardentest.Until(t, "a failed try", func() bool {
		st := r.Status()
		return st != nil && len(st.Alerts) == 1 && st.Alerts[0].Failing && st.Alerts[0].Error == "connection refused" && st.Alerts[0].Untold == 1
	})
	if has("firing", "92%") {
		t.Error("who was killed has told of an alert")
	}
	// It has forgotten all: it sends "resolved" only for what it has sent as firing since.
	since = time.Now()
	m.Start()
	wardentest.Until(t, "firing after it was killed", func() bool { return has("firing", "80%") && has("firing", "92%") })
	r.End()
	wardentest.Until(t, "resolved", func() bool { return has("resolved", "80%") && has("resolved", "92%") })
	faults := 0
	for _, e := range wardentest.Events(t, r.Events)[event.NameFault] {
		if e["part"] == "alert" {
			faults++
		}
	}
	if faults != 1 {
		t.Errorf("%d faults\n%s", faults, r.Stderr.String())
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
	plain.Hold(160)
	base := plain.End()
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
			url, asked := "http://"+promtest.FreeAddr(t), new(atomic.Int32)
			if test.code != 0 {
				url, asked = answering(t, test.code, test.after)
			}
			r := startAlertRun(t, nil, append(rungs, "--alert", "alertmanager+"+url, "--alert", "webhook+"+url+"/x")...)
			r.Hold(160)
			wardentest.Until(t, "tried", func() bool {
				st := r.Status()
				if st == nil || len(st.Alerts) != 2 {
					return false
				}
				a := st.Alerts[0]
				return a.Firing == 1 && a.Error == test.says && (test.says == "" && asked.Load() > 0 || a.Failed > 0)
			})
			took := r.End()
			t.Logf("the end takes %v", took)
			if took > base+2*time.Second { // the shortest wait for an answer is longer
				t.Errorf("the end took %v, and %v without alerts\n%s", took, base, r.Stderr.String())
			}
		})
	}
}

// TestAlertSecrets: what is secret goes to the receiver and is nowhere else: in no
// command line, environment of the process that carries it, line, event, record or
// status. That process is none of the job's and has none of its files.
func TestAlertSecrets(t *testing.T) {
	secrets := []string{"s3cret-name", "s3cret-word", "s3cret-query", "s3cret-path", "s3cret-token"}
	met, release := make(chan *http.Request, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		met <- req
		<-release
		user, word, _ := req.BasicAuth()
		http.Error(w, strings.Join([]string{"no", user, word, req.URL.String(), req.Header.Get("Authorization")}, " "), 500)
	}))
	defer server.Close()
	answer := sync.OnceFunc(func() { close(release) })
	defer answer() // which Close waits for
	host := strings.TrimPrefix(server.URL, "http://")
	third, err := os.Create(filepath.Join(t.TempDir(), "third"))
	wardentest.NoError(t, err)
	defer third.Close()
	r := startAlertRunTo(t, third, []string{
		"RSSWARDEN_ALERT=webhook+http://s3cret-name:s3cret-word@" + host + "/hook?key=s3cret-query\nhttp://" + host + "/s3cret-path token=s3cret-token",
		"RSSWARDEN_ALERT_TOKEN=s3cret-token",
	}, "--at", "none", "--at", "user 80%:warn")
	r.Hold(160)
	req := <-met
	if got := req.Header.Get("Authorization"); got != "Bearer s3cret-token" && !strings.HasPrefix(got, "Basic ") {
		t.Errorf("it got %q", got)
	}
	carrier := 0 // while it waits for an answer
	for _, pid := range wardentest.Descendants(r.Cmd.Process.Pid) {
		if comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); string(comm) == "rsswardend\n" {
			carrier = pid
		}
	}
	if carrier == 0 {
		t.Fatal("no process sends it")
	}
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(carrier) + "/fd/*")
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.HasPrefix(to, r.Dir) || to == third.Name() || filepath.Base(f) != "0" && strings.Contains(to, "memfd") {
			t.Errorf("it has %s open", to)
		}
	}
	var status bytes.Buffer
	wardentest.Until(t, "told of by status", func() bool {
		st := r.Status()
		return st != nil && len(st.Alerts) == 2
	})
	st := r.Status()
	for _, p := range st.Procs {
		if p.PID == carrier {
			t.Error("it counts as the job's")
		}
	}
	found := func(what string, text []byte) {
		t.Helper()
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %s", what, secret)
			}
		}
	}
	for _, pid := range append(wardentest.Descendants(r.Cmd.Process.Pid), r.Cmd.Process.Pid) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		found("a command line", line)
	}
	environ, _ := os.ReadFile("/proc/" + strconv.Itoa(carrier) + "/environ")
	found("its environment", environ)
	answer()
	wardentest.Until(t, "refused by both", func() bool {
		st := r.Status()
		return st != nil && len(st.Alerts) == 2 && st.Alerts[0].Failed > 0 && st.Alerts[1].Failed > 0
	})
	for _, args := range [][]string{{"status", "--pid", strconv.Itoa(r.Status().Ranks[0].PID)}, {"status", "--json"}, {"top", "--once"}, {"run", "--help"}} {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), slices.Concat([]string{"RSSWARDEN_RUNTIME=" + r.Dir}, r.Cmd.Env[len(r.Cmd.Env)-2:])...)
		cmd.Stdout, cmd.Stderr = &status, &status
		if err := cmd.Run(); err != nil {
			t.Logf("%q: %v", args, err)
		}
	}
	found("status", status.Bytes())
	wardentest.Says(t, status.String(), "alert webhook+http://"+host+"/…: 1 firing, 0 sent")
	r.End()
	if b, err := os.ReadFile(third.Name()); err != nil || !bytes.Contains(b, []byte(`"event":"exit"`)) {
		t.Errorf("the events: %s, %v", b, err)
	} else {
		found("the events", b)
	}
	found("stderr", []byte(r.Stderr.String()))
	n := 0
	err = filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		found(path, b)
		n++
		return err
	})
	if err != nil || n < 1 {
		t.Errorf("%d files, %v", n, err)
	}
}
