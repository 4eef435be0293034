package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// broken is a part of ours that fails between two rungs, and what is promised then.
type broken struct {
	prepare func(*brokenRun)
	harm    func(*brokenRun)
	then    func(*brokenRun) // waits for what comes of it, before the end; or nil
	fault   string           // the part of which an event says that it failed; "" for none
	blind   bool             // the second rung is not seen
	says    string           // on stderr
	once    bool             // … a single time
	silent  bool             // … or it is not reported
	noEnd   bool             // nothing left behind has the command's end
	late    bool             // the watcher dies of the second rung, of which it may have told or not
	unsure  bool             // what was left before is all that is promised
}

func (b *broken) run(t *testing.T) {
	r := startBroken(t, b.prepare)
	defer func() {
		if t.Failed() && r.Cmd.ProcessState == nil {
			r.End()
			t.Logf("told %v, stderr:\n%s", r.told.all, r.Stderr.String())
		}
	}()
	r.Hold(164)
	wardentest.Until(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
	wardentest.Until(t, "a record of it", func() bool { l, _ := r.left(); return len(l.Runs) == 1 && l.Runs[0].Decisions == 1 })
	b.harm(r)
	r.Hold(188)
	if !b.silent && !b.blind && !b.unsure {
		wardentest.Until(t, "the second rung told", func() bool { return r.told.has("firing 92%") })
	} else {
		time.Sleep(time.Second) // what does not come cannot be waited for
	}
	if b.fault != "" {
		wardentest.Until(t, "a fault of "+b.fault, func() bool { return r.fault(b.fault) })
	}
	if b.then != nil {
		b.then(r)
	}
	if took, most := r.End(), lastWords(t); took > most {
		t.Errorf("the end took %v, of %v", took, most)
	}
	if r.thaw != nil {
		r.thaw()
	}
	if n := strings.Count(r.Stderr.String(), b.says); n == 0 || b.once && n > 1 {
		t.Errorf("stderr says\n%s", r.Stderr.String())
	}
	l, text := r.left()
	t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.Stderr.String(), l)
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
		wardentest.Until(t, "its end told", func() bool { return r.told.has("resolved 80%") })
	} else if r.told.has("resolved 80%") {
		t.Error("resolved, without a watcher")
	}
}

// lastWords is how long an end may take: 2 s and some, and as long again for each process
// that a processor has to run beside them.
func lastWords(t *testing.T) time.Duration {
	return 3 * time.Second * time.Duration(1+runnable(t)/runtime.NumCPU())
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
	wardentest.NoError(t, err)
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
		"runtime dir gone":     {harm: func(r *brokenRun) { os.RemoveAll(r.Dir) }},
		"record gone":          {harm: func(r *brokenRun) { os.RemoveAll(r.record) }, fault: "record"},
		"record cut off":       {harm: cutOff(0)},
		"record cut within":    {harm: cutOff(12 << 10)},
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
	r.Hold(164)
	wardentest.Until(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
	pid := r.watcher(0)
	// The command keeps its output: Wait is called when it has ended.
	wardentest.NoError(t, r.Cmd.Process.Kill())
	wardentest.Until(t, "the watcher's end", func() bool { return !wardentest.IsWatcher(pid) })
	r.Hold(188) // it answers
	r.In.Close()
	if _ = r.Cmd.Wait(); r.Cmd.ProcessState.String() != "signal: killed" {
		t.Errorf("who started it sees %v", r.Cmd.ProcessState)
	}
	l, text := r.left()
	t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.Stderr.String(), l)
	if len(l.Runs) != 1 || l.Runs[0].Code != nil || l.Runs[0].Decisions != 1 {
		t.Errorf("left %s", text)
	}
	wardentest.Until(t, "what fires resolved", func() bool { return r.told.has("resolved 80%") })
	wardentest.Says(t, wardentest.Read(r.Events), `"outcome":"unknown"`)
}

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
	*e2etest.HeldRun
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
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	told := &receiver{}
	server := httptest.NewServer(told)
	t.Cleanup(server.Close)
	r := &brokenRun{
		HeldRun: &e2etest.HeldRun{T: t, Dir: filepath.Join(dir, "run"), Events: filepath.Join(dir, "events"), Started: time.Now()},
		bin:     filepath.Join(dir, "bin"), state: filepath.Join(dir, "state"), record: filepath.Join(dir, "record"), textfile: filepath.Join(dir, "textfile"),
		told: told,
	}
	for _, d := range []string{r.Dir, r.bin, r.state, r.record, r.textfile} {
		wardentest.NoError(t, os.Mkdir(d, 0o755))
	}
	for name, from := range map[string]string{"rsswarden": faulty, "rsswardend": filepath.Join(filepath.Dir(binary), "rsswardend")} {
		wardentest.NoError(t, os.Link(from, filepath.Join(r.bin, name)))
	}
	r.Cmd = exec.Command(filepath.Join(r.bin, "rsswarden"), "run", "--limit", "200M", "--accounting", "rss", "--interval", "100ms",
		"--at", "none", "--at", "user 80%:warn", "--at", "user 92%:warn", "--alert", server.URL+"/hook",
		"--events", r.Events, "--record", r.record, "--textfile", r.textfile, "--", "/usr/bin/python3", "-c", e2etest.HoldMemory)
	r.Cmd.Env = wardentest.Env("RSSWARDEN_RUNTIME="+r.Dir, "XDG_STATE_HOME="+r.state, "TMPDIR="+r.Dir)
	r.Cmd.Stderr = &r.Stderr
	if prepare != nil {
		prepare(r)
	}
	r.Begin()
	return r
}

// option replaces the value of one.
func (r *brokenRun) option(name, value string) {
	for i, arg := range r.Cmd.Args {
		if arg == name {
			r.Cmd.Args[i+1] = value
			return
		}
	}
	r.T.Fatalf("no option %s", name)
}

// watcher waits for one that is not was, and returns it.
func (r *brokenRun) watcher(was int) (pid int) {
	r.T.Helper()
	wardentest.Until(r.T, "a watcher", func() bool {
		for _, pid = range wardentest.Watchers(r.Cmd.Process.Pid) {
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
	return strings.Contains(wardentest.Read(r.Events), `"event":"fault"`) && strings.Contains(wardentest.Read(r.Events), `"part":"`+part+`"`)
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
	r.T.Helper()
	cmd := exec.Command(binary, "report", "--json")
	for _, place := range []string{r.record, filepath.Join(r.state, "rsswarden", "journals")} {
		if names, _ := os.ReadDir(place); len(names) > 0 {
			cmd.Args = append(cmd.Args, place)
		}
	}
	if len(cmd.Args) == 3 {
		return l, "nothing is left"
	}
	out, errs, _ := wardentest.Output(cmd.Args...) // its status says that a record was damaged
	if json.Unmarshal([]byte(out), &l) != nil {
		l.Runs = nil
	}
	return l, out + errs
}

func strike(sig syscall.Signal) func(*brokenRun) {
	return func(r *brokenRun) {
		pid := r.watcher(0)
		wardentest.NoError(r.T, syscall.Kill(pid, sig))
		if sig != syscall.SIGSTOP {
			r.watcher(pid)
		}
	}
}

// asksFor has the watcher fail while there is a file.
func asksFor(fault string) func(*brokenRun) {
	return func(r *brokenRun) {
		r.Cmd.Env = append(r.Cmd.Env, "RSSWARDEN_FAULT="+fault+"-once:"+filepath.Join(r.bin, "fault"))
	}
}

func faultOnce(r *brokenRun) { faultNext(r)() }

// faultHolder has it turn once more.
func faultHolder(r *brokenRun) {
	wardentest.NoError(r.T, os.WriteFile(filepath.Join(r.bin, "fault"), nil, 0o600))
	wardentest.NoError(r.T, r.Cmd.Process.Signal(syscall.SIGWINCH)) // nothing to the command
}

func outOfMemory(r *brokenRun) {
	g := rsstest.NewGroup(r.T, 64*rss.KiB)
	pid := r.watcher(0)
	g.Join(pid)
	r.watcher(pid)
}

func killOften(r *brokenRun) {
	pid := 0
	for range 4 {
		pid = r.watcher(pid)
		wardentest.NoError(r.T, syscall.Kill(pid, syscall.SIGKILL))
	}
	wardentest.Until(r.T, "no watcher", func() bool { return len(wardentest.Watchers(r.Cmd.Process.Pid)) == 0 })
}

func limitWatcher(resource int, to uint64) func(*brokenRun) {
	return func(r *brokenRun) {
		wardentest.NoError(r.T, unix.Prlimit(r.watcher(0), resource, &unix.Rlimit{Cur: to, Max: to}, nil))
	}
}

func alertHangs(r *brokenRun) {
	path := filepath.Join(r.bin, "rsswardend")
	os.Remove(path)
	wardentest.NoError(r.T, os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 20\n"), 0o755))
}

// scontrolHangs is a step of which neither limits nor end are known but by asking.
func scontrolHangs(r *brokenRun) {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%[1]s/asked.new; mv %[1]s/asked.new %[1]s/asked\nexec sleep 600\n", r.bin)
	wardentest.NoError(r.T, os.WriteFile(filepath.Join(r.bin, "scontrol"), []byte(script), 0o755))
	r.Cmd.Env = append(r.Cmd.Env, "PATH="+r.bin+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1",
		"SLURM_MEM_PER_NODE=20000", "SLURM_CONF="+r.bin+"/none")
}

// scontrolAsked waits for that. When the run has ended it is not there any more.
func scontrolAsked(r *brokenRun) {
	var pid int
	wardentest.Until(r.T, "scontrol asked", func() bool {
		b, err := os.ReadFile(filepath.Join(r.bin, "asked"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	r.T.Cleanup(func() {
		wardentest.Until(r.T, "scontrol ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	})
}

// startDaemon starts the node's daemon beside the run.
func startDaemon(r *brokenRun) {
	at := promtest.FreeAddr(r.T)
	cmd := exec.Command(filepath.Join(r.bin, "rsswardend"), "--listen", at)
	wardentest.NoError(r.T, cmd.Start())
	r.T.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	wardentest.Until(r.T, "the daemon", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	r.daemon = cmd
}

func killDaemon(r *brokenRun) {
	wardentest.NoError(r.T, r.daemon.Process.Kill())
	_ = r.daemon.Wait()
}

// startBy has other programs start it.
func (r *brokenRun) startBy(program ...string) {
	r.Cmd.Args = append(program, append([]string{r.Cmd.Path}, r.Cmd.Args[1:]...)...)
	r.Cmd.Path = program[0]
}

// inPids starts it in a pids cgroup of its own.
func inPids(r *brokenRun) {
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("rsswarden-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		r.T.Cleanup(func() {
			for end := time.Now().Add(5 * time.Second); os.Remove(dir) != nil && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
		})
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			r.pids = dir
			r.startBy("/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir)
			return
		}
	}
	r.T.Skip("needs a pids cgroup")
}

func noTasks(r *brokenRun) {
	wardentest.NoError(r.T, os.WriteFile(filepath.Join(r.pids, "pids.max"), []byte("1"), 0o644))
}

func execHangs(r *brokenRun) { r.second("exec=sleep 60") }

func execFails(r *brokenRun) { r.second("exec=no-such-program") }

// second has the second rung do something else.
func (r *brokenRun) second(action string) {
	for i, arg := range r.Cmd.Args {
		if arg == "user 92%:warn" {
			r.Cmd.Args[i] = "user 92%:" + action
		}
	}
}

func ulimitV(r *brokenRun) { r.startBy("/bin/sh", "-c", `ulimit -v 2000000 && exec "$@"`, "sh") }

// interrupt sends each thread of the watcher a signal that its runtime ignores, a
// thousand times a second: what can be interrupted is.
func interrupt(r *brokenRun) { interrupts(r, r.watcher(0), unix.SIGURG) }

// interruptBoth sends the holder's a signal too that it passes on to the command, as it
// does to no other.
func interruptBoth(r *brokenRun) {
	interrupts(r, r.watcher(0), unix.SIGURG)
	interrupts(r, r.Cmd.Process.Pid, unix.SIGWINCH)
}

func interrupts(r *brokenRun, pid int, sig syscall.Signal) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none once it has ended
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil {
					_ = unix.Tgkill(pid, tid, sig)
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	r.T.Cleanup(func() { close(stop); <-done })
}

// for10s is how long it goes on.
func for10s(*brokenRun) { time.Sleep(10 * time.Second) }

func stderrTo(path string) func(*brokenRun) {
	return func(r *brokenRun) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		wardentest.NoError(r.T, err)
		r.T.Cleanup(func() { f.Close() })
		r.Cmd.Stderr = f
	}
}

// stderrClosed has no reader at the other end.
func stderrClosed(r *brokenRun) {
	from, to, err := os.Pipe()
	wardentest.NoError(r.T, err)
	from.Close()
	r.T.Cleanup(func() { to.Close() })
	r.Cmd.Stderr = to
}

// stderrNotRead is a pipe that is full.
func stderrNotRead(r *brokenRun) {
	from, to, err := os.Pipe()
	wardentest.NoError(r.T, err)
	r.T.Cleanup(func() { from.Close(); to.Close() })
	wardentest.NoError(r.T, to.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	for buf := make([]byte, 4096); ; {
		if _, err := to.Write(buf); err != nil {
			break
		}
	}
	wardentest.NoError(r.T, unix.SetNonblock(int(to.Fd()), false))
	r.Cmd.Stderr = to
}

func eventsNotRead(r *brokenRun) {
	r.Events += ".fifo"
	wardentest.NoError(r.T, syscall.Mkfifo(r.Events, 0o600))
	r.option("--events", r.Events)
	r.Events += ".none"
}

// cutOff has LMDB reach for pages that are not there, a real SIGBUS.
func cutOff(size int64) func(*brokenRun) {
	return func(r *brokenRun) {
		files, _ := filepath.Glob(filepath.Join(r.record, "*", "data.mdb"))
		if len(files) != 1 {
			r.T.Fatalf("records %v", files)
		}
		pid := r.watcher(0)
		wardentest.NoError(r.T, os.Truncate(files[0], size))
		r.watcher(pid)
	}
}

func (r *brokenRun) shell(script string, args ...string) {
	r.T.Helper()
	if out, err := exec.Command("sh", append([]string{"-ec", script}, args...)...).CombinedOutput(); err != nil {
		r.T.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// onDisk gives the record a file system of its own.
func onDisk(r *brokenRun) {
	wardentest.NeedRoot(r.T, "needs root, to mount")
	r.shell(`truncate -s 300M "$0" && mkfs.ext4 -q "$0" && mount -o loop "$0" "$1"`, r.bin+"/img", r.record)
	r.T.Cleanup(func() { r.shell(`umount -l "$0"`, r.record) })
}

func fillDisk(r *brokenRun) {
	r.shell(`dd if=/dev/zero of="$0/full" bs=1M 2>&- || true`, r.record)
}

func freezeDisk(r *brokenRun) {
	r.shell(`fsfreeze -f "$0"`, r.record)
	thaw := time.AfterFunc(30*time.Second, func() { _ = exec.Command("fsfreeze", "-u", r.record).Run() }) // whatever hangs
	r.T.Cleanup(func() { thaw.Stop(); _ = exec.Command("fsfreeze", "-u", r.record).Run() })
	r.thaw = func() { r.shell(`fsfreeze -u "$0"`, r.record) }
}

// failDisk has each read and write of it fail with EIO from now on.
func failDisk(r *brokenRun) {
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	dir, err := os.Open(r.record)
	wardentest.NoError(r.T, err)
	defer dir.Close()
	wardentest.NoError(r.T, unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, 2)) // without a flush
}

// ownMounts runs it in a mount namespace.
func ownMounts(r *brokenRun) {
	wardentest.NeedRoot(r.T, "needs root, to mount")
	r.startBy("/usr/bin/unshare", "--mount")
}

// unmountProc takes /proc away from us, and from the command.
func unmountProc(r *brokenRun) {
	r.shell(`nsenter --mount --target "$0" umount -l /proc`, fmt.Sprint(r.Cmd.Process.Pid))
}

func unmountCgroup(r *brokenRun) {
	r.shell(`nsenter --mount --target "$0" umount -R -l /sys/fs/cgroup`, fmt.Sprint(r.Cmd.Process.Pid))
}

// recordNowhere has a file where the directory of the record is to be.
func recordNowhere(r *brokenRun) { r.option("--record", filepath.Join(r.bin, "rsswarden", "record")) }

func readOnlyState(r *brokenRun) {
	wardentest.NeedRoot(r.T, "needs root, to mount")
	r.shell(`mount -t tmpfs -o ro none "$0"`, r.state)
	r.T.Cleanup(func() { r.shell(`umount -l "$0"`, r.state) })
}

// oldKernel has none of the calls that are newer than Linux 4.18, and waitid(2) of no
// pidfd.
func oldKernel(r *brokenRun) {
	rules := "[(-424, 38), (247, 22, 0, 3)]"
	out, err := exec.Command("/usr/bin/python3", "-c", wardentest.Refuses, rules, "/usr/bin/python3", "-c", "import os; os.pidfd_open(os.getpid())").CombinedOutput()
	if err == nil {
		r.T.Fatalf("pidfd_open works: %s", out)
	}
	r.startBy(wardentest.Refusing(r.T, rules)...)
}

// mayNotSignal has kill(2) and pidfd_send_signal(2) refused, as of a process that has
// changed its user and that the second rung signals.
func mayNotSignal(action string) func(*brokenRun) {
	return func(r *brokenRun) {
		r.second(action)
		r.Cmd.Args[len(r.Cmd.Args)-1] = "import signal; signal.signal(signal.SIGUSR1, print)\n" + e2etest.HoldMemory
		r.startBy(wardentest.Refusing(r.T, "[(62, 1), (424, 1)]")...)
	}
}

// wait3s is time enough to try again, were it tried again.
func wait3s(*brokenRun) { time.Sleep(3 * time.Second) }
