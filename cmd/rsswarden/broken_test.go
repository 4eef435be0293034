package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// broken is a part of ours that fails between two rungs, and what is promised then.
type broken struct {
	prepare func(*brokenRun)
	harm    func(*brokenRun)
	then    func(*brokenRun) // waits for what comes of it, before the end; or nil
	fault   string           // the part of which an event says that it failed; "" for none
	blind   bool             // nobody sees the second rung
	says    string           // on stderr
	once    bool             // … a single time
	silent  bool             // … or nobody is told of it
	noEnd   bool             // nothing left behind has the command's end
	late    bool             // the watcher dies of the second rung, of which it may have told or not
	unsure  bool             // what was left before is all that is promised
}

func (b *broken) run(t *testing.T) {
	r := startBroken(t, b.prepare)
	defer func() {
		if t.Failed() && r.cmd.ProcessState == nil {
			r.end()
			t.Logf("told %v, stderr:\n%s", r.told.all, r.stderr.String())
		}
	}()
	r.hold(164)
	soon(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
	soon(t, "a record", func() bool { l, _ := r.left(); return len(l.Runs) == 1 })
	b.harm(r)
	r.hold(188)
	if !b.silent && !b.blind && !b.unsure {
		soon(t, "the second rung told", func() bool { return r.told.has("firing 92%") })
	} else {
		time.Sleep(time.Second) // what does not come cannot be waited for
	}
	if b.fault != "" {
		soon(t, "a fault of "+b.fault, func() bool { return r.fault(b.fault) })
	}
	if b.then != nil {
		b.then(r)
	}
	// The last words have 2 s, and as long again for each process that a processor has
	// to run beside them.
	if took, most := r.end(), 3*time.Second*time.Duration(1+runnable(t)/runtime.NumCPU()); took > most {
		t.Errorf("the end took %v, of %v", took, most)
	}
	if r.thaw != nil {
		r.thaw()
	}
	if n := strings.Count(r.stderr.String(), b.says); n == 0 || b.once && n > 1 {
		t.Errorf("stderr says\n%s", r.stderr.String())
	}
	l, text := r.left()
	t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.stderr.String(), l)
	if len(l.Runs) != 1 {
		t.Fatalf("left:\n%s", text)
	}
	if b.unsure {
		if l.Runs[0].Decisions == 0 {
			t.Errorf("left %+v", l.Runs[0])
		}
		return
	}
	want := 2
	if b.blind {
		want = 1
	}
	if got := l.Runs[0]; got.Decisions != want && !(b.late && got.Decisions == want-1) || (got.Code == nil) != b.noEnd {
		t.Errorf("left %+v, want %d decisions, no end %v", got, want, b.noEnd)
	}
	if !b.silent && !b.noEnd {
		// What carries it may outlive us.
		soon(t, "its end told", func() bool { return r.told.has("resolved 80%") })
	} else if r.told.has("resolved 80%") {
		t.Error("resolved, and nobody was there to tell it")
	}
}

// runnable is how many threads of this machine run or wait for a processor, by field 4
// of /proc/loadavg.
func runnable(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		var load [3]float64
		_, err = fmt.Sscanf(string(b), "%f %f %f %d/", &load[0], &load[1], &load[2], &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nothing(*brokenRun) {}

// TestPartOfOursFails: in the midst of a run some part of ours fails. The command ends
// as bare, and what of record and alerts is promised comes.
func TestPartOfOursFails(t *testing.T) {
	for name, b := range map[string]broken{
		"nothing":              {harm: nothing},
		"watcher killed":       {harm: strike(syscall.SIGKILL)},
		"watcher gets SIGBUS":  {prepare: asksFor("bus"), harm: faultOnce},
		"watcher stopped":      {harm: strike(syscall.SIGSTOP), blind: true},
		"watcher panics":       {prepare: asksFor("panic"), harm: faultOnce},
		"watcher OOM-killed":   {harm: outOfMemory},
		"holder panics":        {prepare: asksFor("panic-in:holder"), harm: faultHolder, says: "the holder failed; the command runs on"},
		"watcher killed often": {harm: killOften, blind: true, noEnd: true},
		"no descriptors":       {harm: limitWatcher(unix.RLIMIT_NOFILE, 4), fault: "proctree", blind: true, silent: true},
		"no address space":     {harm: limitWatcher(unix.RLIMIT_AS, 1<<20), unsure: true},
		"alert program gone":   {harm: func(r *brokenRun) { os.Remove(filepath.Join(r.bin, "rsswardend")) }, fault: "alert", silent: true},
		"alert program hangs":  {harm: alertHangs, silent: true},
		"textfile gone":        {harm: func(r *brokenRun) { os.RemoveAll(r.textfile) }, fault: "textfile"},
		"runtime dir gone":     {harm: func(r *brokenRun) { os.RemoveAll(r.dir) }},
		"record gone":          {harm: func(r *brokenRun) { os.RemoveAll(r.record) }, fault: "record"},
		"record cut off":       {harm: cutOff},
		"record nowhere":       {prepare: recordNowhere, harm: nothing, fault: "start", says: "there is no full record of this run"},
		"record disk full":     {prepare: onDisk, harm: fillDisk},
		"record disk hangs":    {prepare: onDisk, harm: freezeDisk},
		"record disk fails":    {prepare: onDisk, harm: failDisk},
		"proc gone":            {prepare: ownMounts, harm: unmountProc},
		"no tasks":             {prepare: inPids, harm: noTasks, says: " alert: webhook+http", silent: true},
		"cgroup unmounted":     {prepare: ownMounts, harm: unmountCgroup, fault: "cgroup"},
		"exec hangs":           {prepare: execHangs, harm: nothing},
		"exec fails":           {prepare: execFails, harm: nothing},
		"state read-only":      {prepare: readOnlyState, harm: nothing, fault: "journal"},
		"little address space": {prepare: ulimitV, harm: nothing},
		"interrupted":          {harm: interrupt},
		"holder interrupted":   {harm: interruptBoth, then: for10s},
		"kernel of 4.18":       {prepare: oldKernel, harm: strike(syscall.SIGKILL)},
		"stop not allowed":     {prepare: mayNotSignal("stop"), harm: nothing, then: wait3s, says: "operation not permitted", once: true},
		"signal not allowed":   {prepare: mayNotSignal("signal=USR1"), harm: nothing, then: wait3s, says: "operation not permitted", once: true},
		"stderr full":          {prepare: stderrTo("/dev/full"), harm: nothing},
		"stderr closed":        {prepare: stderrClosed, harm: nothing},
		"stderr not read":      {prepare: stderrNotRead, harm: nothing},
		"events not read":      {prepare: eventsNotRead, harm: nothing},
		"scontrol hangs":       {prepare: scontrolHangs, harm: scontrolAsked},
		"daemon killed":        {prepare: startDaemon, harm: killDaemon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.run(t)
		})
	}
}

// TestHolderOfRunKilled: the command runs on, and the watcher says that it does not
// know its end.
func TestHolderOfRunKilled(t *testing.T) {
	r := startBroken(t, nil)
	r.hold(164)
	soon(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
	pid := r.watcher(0)
	// The command keeps its output: Wait is called when it has ended.
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the watcher's end", func() bool { return !isWatcher(pid) })
	r.hold(188) // it answers
	r.in.Close()
	if _ = r.cmd.Wait(); r.cmd.ProcessState.String() != "signal: killed" {
		t.Errorf("who started it sees %v", r.cmd.ProcessState)
	}
	l, text := r.left()
	t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.stderr.String(), l)
	if len(l.Runs) != 1 || l.Runs[0].Code != nil || l.Runs[0].Decisions != 1 {
		t.Errorf("left %s", text)
	}
	soon(t, "what fires resolved", func() bool { return r.told.has("resolved 80%") })
	if !strings.Contains(eventText(r.events), `"verdict":"unwatched"`) {
		t.Error("no last event")
	}
}
