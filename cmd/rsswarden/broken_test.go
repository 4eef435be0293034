package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// broken is a part of ours that fails between two rungs, and what is promised then.
type broken struct {
	prepare func(*brokenRun)
	harm    func(*brokenRun)
	fault   string // the part of which an event says that it failed; "" for none
	blind   bool   // nobody sees the second rung
	says    string // on stderr
	silent  bool   // … or nobody is told of it
	noEnd   bool   // nothing left behind has the command's end
	unsure  bool   // what was left before is all that is promised
}

func (b *broken) run(t *testing.T) {
	r := startBroken(t, b.prepare)
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
	// The last words have 2 s; a loaded machine takes longer.
	if took := r.end(); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
	if r.thaw != nil {
		r.thaw()
	}
	if !strings.Contains(r.stderr.String(), b.says) {
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
	if got := l.Runs[0]; got.Decisions != want || (got.Code == nil) != b.noEnd {
		t.Errorf("left %+v, want %d decisions, no end %v", got, want, b.noEnd)
	}
	if !b.silent && !b.noEnd {
		// What carries it may outlive us.
		soon(t, "its end told", func() bool { return r.told.has("resolved 80%") })
	} else if r.told.has("resolved 80%") {
		t.Error("resolved, and nobody was there to tell it")
	}
}

func strike(sig syscall.Signal) func(*brokenRun) {
	return func(r *brokenRun) {
		pid := r.watcher(0)
		if err := syscall.Kill(pid, sig); err != nil {
			r.t.Fatal(err)
		}
		if sig != syscall.SIGSTOP {
			r.watcher(pid)
		}
	}
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
		"record disk full":     {prepare: onDisk, harm: fillDisk},
		"record disk hangs":    {prepare: onDisk, harm: freezeDisk},
		"record disk fails":    {prepare: onDisk, harm: failDisk},
		"proc gone":            {prepare: ownMounts, harm: unmountProc},
		"no tasks":             {prepare: inPids, harm: noTasks, fault: "alert", silent: true},
		"cgroup unmounted":     {prepare: ownMounts, harm: unmountCgroup, fault: "cgroup"},
		"exec hangs":           {prepare: execHangs, harm: nothing},
		"exec fails":           {prepare: execFails, harm: nothing},
		"state read-only":      {prepare: readOnlyState, harm: nothing, fault: "journal"},
		"little address space": {prepare: ulimitV, harm: nothing},
		"interrupted":          {harm: interrupt},
		"kernel of 4.18":       {prepare: oldKernel, harm: strike(syscall.SIGKILL)},
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

// asksFor has the watcher fail while there is a file.
func asksFor(fault string) func(*brokenRun) {
	return func(r *brokenRun) {
		r.cmd.Env = append(r.cmd.Env, "RSSWARDEN_FAULT="+fault+"-while:"+filepath.Join(r.bin, "fault"))
	}
}

func faultOnce(r *brokenRun) {
	pid, file := r.watcher(0), filepath.Join(r.bin, "fault")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	soon(r.t, "its end", func() bool { return !isWatcher(pid) })
	os.Remove(file)
	r.watcher(pid)
}

// faultHolder has it turn once more.
func faultHolder(r *brokenRun) {
	if err := os.WriteFile(filepath.Join(r.bin, "fault"), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGWINCH); err != nil { // nothing to the command
		r.t.Fatal(err)
	}
}

func outOfMemory(r *brokenRun) {
	g := rsstest.NewGroup(r.t, 64*rss.KiB)
	pid := r.watcher(0)
	g.Join(pid)
	r.watcher(pid)
}

func killOften(r *brokenRun) {
	pid := 0
	for range 4 {
		pid = r.watcher(pid)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			r.t.Fatal(err)
		}
	}
	soon(r.t, "no watcher", func() bool { return len(watchers(r.cmd.Process.Pid)) == 0 })
}

func limitWatcher(resource int, to uint64) func(*brokenRun) {
	return func(r *brokenRun) {
		if err := unix.Prlimit(r.watcher(0), resource, &unix.Rlimit{Cur: to, Max: to}, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

func alertHangs(r *brokenRun) {
	path := filepath.Join(r.bin, "rsswardend")
	os.Remove(path)
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 20\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func stderrTo(path string) func(*brokenRun) {
	return func(r *brokenRun) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { f.Close() })
		r.cmd.Stderr = f
	}
}

// stderrClosed has nobody at the other end.
func stderrClosed(r *brokenRun) {
	from, to, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	from.Close()
	r.t.Cleanup(func() { to.Close() })
	r.cmd.Stderr = to
}

// stderrNotRead is a pipe that is full.
func stderrNotRead(r *brokenRun) {
	from, to, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { from.Close(); to.Close() })
	if err := to.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		r.t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		if _, err := to.Write(buf); err != nil {
			break
		}
	}
	if err := unix.SetNonblock(int(to.Fd()), false); err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Stderr = to
}

func eventsNotRead(r *brokenRun) {
	r.events += ".fifo"
	if err := syscall.Mkfifo(r.events, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.option("--events", r.events)
	r.events += ".none"
}

// scontrolHangs is a step of which neither limits nor end are known but by asking.
func scontrolHangs(r *brokenRun) {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%[1]s/asked.new; mv %[1]s/asked.new %[1]s/asked\nexec sleep 600\n", r.bin)
	if err := os.WriteFile(filepath.Join(r.bin, "scontrol"), []byte(script), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Env = append(r.cmd.Env, "PATH="+r.bin+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1",
		"SLURM_MEM_PER_NODE=20000", "SLURM_CONF="+r.bin+"/none")
}

// scontrolAsked waits for that. When the run has ended it is not there any more.
func scontrolAsked(r *brokenRun) {
	var pid int
	soon(r.t, "scontrol asked", func() bool {
		b, err := os.ReadFile(filepath.Join(r.bin, "asked"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	r.t.Cleanup(func() {
		soon(r.t, "scontrol ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	})
}

// startDaemon starts the node's daemon beside the run.
func startDaemon(r *brokenRun) {
	at := freePort(r.t)
	cmd := exec.Command(filepath.Join(r.bin, "rsswardend"), "--listen", at)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	soon(r.t, "the daemon", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	r.daemon = cmd
}

func killDaemon(r *brokenRun) {
	if err := r.daemon.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = r.daemon.Wait()
}

// cutOff has LMDB reach for pages that are not there, a real SIGBUS.
func cutOff(r *brokenRun) {
	files, _ := filepath.Glob(filepath.Join(r.record, "*", "data.mdb"))
	if len(files) != 1 {
		r.t.Fatalf("records %v", files)
	}
	pid := r.watcher(0)
	if err := os.Truncate(files[0], 0); err != nil {
		r.t.Fatal(err)
	}
	r.watcher(pid)
}

func (r *brokenRun) shell(script string, args ...string) {
	r.t.Helper()
	if out, err := exec.Command("sh", append([]string{"-ec", script}, args...)...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// onDisk gives the record a file system of its own.
func onDisk(r *brokenRun) {
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to mount")
	}
	r.shell(`truncate -s 300M "$0" && mkfs.ext4 -q "$0" && mount -o loop "$0" "$1"`, r.bin+"/img", r.record)
	r.t.Cleanup(func() { r.shell(`umount -l "$0"`, r.record) })
}

func fillDisk(r *brokenRun) {
	r.shell(`dd if=/dev/zero of="$0/full" bs=1M 2>&- || true`, r.record)
}

func freezeDisk(r *brokenRun) {
	r.shell(`fsfreeze -f "$0"`, r.record)
	thaw := time.AfterFunc(30*time.Second, func() { _ = exec.Command("fsfreeze", "-u", r.record).Run() }) // whatever hangs
	r.t.Cleanup(func() { thaw.Stop(); _ = exec.Command("fsfreeze", "-u", r.record).Run() })
	r.thaw = func() { r.shell(`fsfreeze -u "$0"`, r.record) }
}

// failDisk has each read and write of it fail with EIO from now on.
func failDisk(r *brokenRun) {
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	dir, err := os.Open(r.record)
	if err != nil {
		r.t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, 2); err != nil { // without a flush
		r.t.Fatal(err)
	}
}

// ownMounts runs it in a mount namespace.
func ownMounts(r *brokenRun) {
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to mount")
	}
	r.startBy("/usr/bin/unshare", "--mount")
}

// unmountProc takes /proc away from us, and from the command.
func unmountProc(r *brokenRun) {
	r.shell(`nsenter --mount --target "$0" umount -l /proc`, fmt.Sprint(r.cmd.Process.Pid))
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

// startBy has other programs start it.
func (r *brokenRun) startBy(program ...string) {
	r.cmd.Args = append(program, append([]string{r.cmd.Path}, r.cmd.Args[1:]...)...)
	r.cmd.Path = program[0]
}

// inPids starts it in a pids cgroup of its own.
func inPids(r *brokenRun) {
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("rsswarden-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		r.t.Cleanup(func() {
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
	r.t.Skip("needs a pids cgroup")
}

func noTasks(r *brokenRun) {
	if err := os.WriteFile(filepath.Join(r.pids, "pids.max"), []byte("1"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func unmountCgroup(r *brokenRun) {
	r.shell(`nsenter --mount --target "$0" umount -R -l /sys/fs/cgroup`, fmt.Sprint(r.cmd.Process.Pid))
}

func execHangs(r *brokenRun) { r.second("exec=sleep 60") }
func execFails(r *brokenRun) { r.second("exec=no-such-program") }

// second has the second rung do something else.
func (r *brokenRun) second(action string) {
	for i, arg := range r.cmd.Args {
		if arg == "user 92%:warn" {
			r.cmd.Args[i] = "user 92%:" + action
		}
	}
}

func readOnlyState(r *brokenRun) {
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to mount")
	}
	r.shell(`mount -t tmpfs -o ro none "$0"`, r.state)
	r.t.Cleanup(func() { r.shell(`umount -l "$0"`, r.state) })
}

func ulimitV(r *brokenRun) { r.startBy("/bin/sh", "-c", `ulimit -v 2000000 && exec "$@"`, "sh") }

// interrupt sends each thread of the watcher a signal that its runtime ignores, all the
// time: what can be interrupted is.
func interrupt(r *brokenRun) {
	pid := r.watcher(0)
	go func() {
		for isWatcher(pid) {
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil {
					_ = unix.Tgkill(pid, tid, unix.SIGURG)
				}
			}
			time.Sleep(500 * time.Microsecond)
		}
	}()
}

// belowSyscall424 has every system call that is newer than Linux 4.18 fail with ENOSYS,
// and waitid(2) of a pidfd with EINVAL, in the program that it executes.
const belowSyscall424 = `
import ctypes, os, struct, sys
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
LOAD, GE, EQ, RET = 0x20, 0x35, 0x15, 0x06
program = b"".join([
    op(LOAD, 0, 0, 0),
    op(GE, 3, 0, 424),
    op(EQ, 0, 3, 247), # waitid
    op(LOAD, 0, 0, 16),
    op(EQ, 2, 1, 3), # P_PIDFD
    op(RET, 0, 0, 0x00050000 | 38),
    op(RET, 0, 0, 0x7fff0000),
    op(RET, 0, 0, 0x00050000 | 22),
])
buf = ctypes.create_string_buffer(program)
prog = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
for args in ((38, 1, 0, 0, 0), (22, 2, prog, 0, 0)):
    if libc.prctl(*args): sys.exit(os.strerror(ctypes.get_errno()))
try:
    os.pidfd_open(os.getpid())
    sys.exit("pidfd_open works")
except OSError as e:
    if e.errno != 38: raise
os.execv(sys.argv[1], sys.argv[1:])
`

// oldKernel plays one.
func oldKernel(r *brokenRun) {
	if runtime.GOARCH != "amd64" {
		r.t.Skip("the numbers of system calls are amd64's")
	}
	r.startBy("/usr/bin/python3", "-c", belowSyscall424)
}
