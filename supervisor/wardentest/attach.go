package wardentest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
