package hunt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"golang.org/x/sys/unix"
)

// mostOurs is what a program of ours may take, whatever it is shown.
const mostOurs = 256 << 20

func init() {
	roles["node-hold"] = holdRole
	roles["node-dress"] = dressRole
	roles["node-call"] = callRole
	// slurmstepd writes its title over all of its arguments.
	if strings.HasPrefix(os.Args[0], "slurmstepd: [") {
		os.Exit(stepdRole())
	}
}

// holdRole holds so many MiB, says so, and ends with its standard input.
func holdRole(args []string) int {
	mib, _ := strconv.Atoi(args[0])
	kept := bytes.Repeat([]byte{1}, mib<<20)
	fmt.Println("ready", os.Getpid())
	io.Copy(io.Discard, os.Stdin)
	return int(kept[0]) - 1
}

// dressRole shows 3 GiB of itself as its command line, environment, or both: "cmdline",
// "environ". Then it is as holdRole.
func dressRole(args []string) int {
	const size = 3 << 30
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	copy(b, "python\x00-c\x00")
	start := uint64(uintptr(unsafe.Pointer(&b[0])))
	for _, what := range args {
		from, to := uintptr(unix.PR_SET_MM_ARG_START), uintptr(unix.PR_SET_MM_ARG_END)
		if what == "environ" {
			from, to = unix.PR_SET_MM_ENV_START, unix.PR_SET_MM_ENV_END
		}
		if err := setMM(from, to, start, start+size); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return holdRole([]string{"1"})
}

// prctlMap is struct prctl_mm_map of include/uapi/linux/prctl.h.
type prctlMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              uint64
	auxvSize, exeFD                                                   uint32
}

// setMM sets two bounds of what /proc shows, all others stay as /proc/self/stat has them.
func setMM(from, to uintptr, start, end uint64) error {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	field := func(n int) uint64 { v, _ := strconv.ParseUint(f[n-3], 10, 64); return v } // proc_pid_stat(5)
	m := prctlMap{
		startCode: field(26), endCode: field(27), startStack: field(28), startData: field(45), endData: field(46),
		startBrk: field(47), brk: field(47), argStart: field(48), argEnd: field(49), envStart: field(50), envEnd: field(51),
		exeFD: ^uint32(0),
	}
	if from == unix.PR_SET_MM_ARG_START {
		m.argStart, m.argEnd = start, end
	} else {
		m.envStart, m.envEnd = start, end
	}
	if cur, _, _ := syscall.Syscall(syscall.SYS_BRK, 0, 0, 0); cur != 0 {
		m.brk = uint64(cur)
	}
	return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0)
}

// callRole opens so many connections to an address, sends a text on each, says how many,
// and keeps them until its standard input ends.
func callRole(args []string) int {
	n, _ := strconv.Atoi(args[1])
	text, err := strconv.Unquote(args[2])
	if err != nil {
		return 1
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 20000, Max: 20000})
	opened := 0
	var conns []net.Conn
	for range n {
		c, err := net.DialTimeout("tcp", args[0], 100*time.Millisecond)
		if err != nil {
			continue
		}
		c.Write([]byte(text))
		opened++
		conns = append(conns, c)
	}
	fmt.Println("ready", opened)
	io.Copy(io.Discard, os.Stdin)
	return len(conns) - opened
}

// stepdRole is a slurmstepd with one task: the role that HUNT_TASK says, of the user
// HUNT_UID.
func stepdRole() int {
	words := strings.Fields(os.Getenv("HUNT_TASK"))
	uid, _ := strconv.ParseUint(os.Getenv("HUNT_UID"), 10, 32)
	cmd := exec.Command("/proc/self/exe", words...)
	cmd.Args[0] = "task"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Geteuid() == 0 {
		as(uint32(uid), cmd)
	}
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// actor is a process that plays a role until the test ends.
type actor struct {
	cmd  *exec.Cmd
	pid  int // that it said; of a task below slurmstepd the task's
	in   io.Closer
	done chan struct{}
}

// act starts a command that says "ready N".
func act(t testing.TB, cmd *exec.Cmd) *actor {
	t.Helper()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	a := &actor{cmd: cmd, in: in, done: make(chan struct{})}
	s := bufio.NewScanner(out)
	s.Scan()
	if n, _ := fmt.Sscanf(s.Text(), "ready %d", &a.pid); n != 1 {
		t.Fatalf("%q says %q", cmd.Args, s.Text())
	}
	go func() {
		cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(a.end)
	return a
}

func (a *actor) end() {
	a.in.Close()
	select {
	case <-a.done:
	case <-time.After(5 * time.Second):
		a.cmd.Process.Kill()
		<-a.done
	}
}

func (a *actor) lives() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// holder is a process of a user's with an environment and so much memory.
func holder(t testing.TB, uid uint32, mib int, env ...string) *actor {
	t.Helper()
	cmd := as(uid, role("node-hold", strconv.Itoa(mib)))
	cmd.Env = append(wardentest.Env(), env...)
	cmd.Dir = "/"
	return act(t, cmd)
}

// stepd is a program with this title and a task below it. It is a slurmstepd of root's
// where uid is 0.
func stepd(t testing.TB, uid uint32, title string, task string, taskUID uint32, env ...string) *actor {
	t.Helper()
	dir := shared(t, 0o755)
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	name := filepath.Join(dir, "slurmstepd")
	must(t, errors.Join(os.WriteFile(name, self, 0o755), os.Chown(name, int(uid), int(uid))))
	cmd := exec.Command(name)
	cmd.Args = []string{title}
	cmd.Env = append(append(wardentest.Env(), env...), "HUNT_TASK="+task, fmt.Sprint("HUNT_UID=", taskUID))
	cmd.Dir = "/"
	if uid != 0 {
		as(uid, cmd)
	}
	return act(t, cmd)
}

// group makes a memory cgroup below one of this test's, and puts a process there. The
// last directory and that above it are the owner's.
func group(t testing.TB, owner int, below string, pid int) {
	t.Helper()
	base := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(base); err != nil {
		base = "/sys/fs/cgroup"
	}
	dir := fmt.Sprintf("%s/slurm_hunt%d/%s", base, os.Getpid(), below)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skip("needs cgroups:", err)
	}
	t.Cleanup(func() {
		// The process may live still, and its group cannot be removed then.
		_ = os.WriteFile(filepath.Join(base, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		for d := dir; filepath.Base(d) != filepath.Base(base) && os.Remove(d) == nil; {
			d = filepath.Dir(d)
		}
	})
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chown(d, owner, owner))
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Skip("needs cgroups:", err)
	}
}

// attach is what root types: of a job with a rule that stops it at 30 MiB, which the
// attacker's memory alone is above. It looks until five samples were taken, or it ends.
func attach(t testing.TB, env []string, args ...string) result {
	t.Helper()
	return attachFor(t, 5, env, args...)
}

// attachFor is attach for so many samples.
func attachFor(t testing.TB, samples int, env []string, args ...string) result {
	t.Helper()
	events := filepath.Join(t.TempDir(), "events")
	args = append([]string{"attach", "--record", "none", "--events", events, "--limit", "60M", "--interval", "20ms", "--at", "none"}, args...)
	if slices.Contains(args, "--job") {
		args = append(args, "--at", "50%:stop")
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(wardentest.Env(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(events)
		if bytes.Count(b, []byte(`"event":"sample"`)) >= samples {
			break
		}
		select {
		case <-ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
			cmd.Process.Kill()
			t.Errorf("attach took no %d samples\n%s", samples, &errs)
		}
		break
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		<-ended
		t.Error("attach does not end")
	}
	b, _ := os.ReadFile(events)
	r := result{stdout: string(b), stderr: errs.String(), maxRSS: cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10}
	r.status = cmd.ProcessState.ExitCode()
	return r
}

// watchedAlone checks that attach saw the victim and nothing of the attacker's.
func watchedAlone(t testing.TB, r result, who *actor) {
	t.Helper()
	if !who.lives() {
		t.Errorf("the victim was ended\n%s", r.stderr)
	}
	if !strings.Contains(r.stdout, `"event":"sample"`) || strings.Contains(r.stdout, `"event":"decision"`) {
		t.Errorf("status %d\n%s\n%s", r.status, r.stderr, r.stdout)
	}
}

// scontrol makes a directory for PATH with a scontrol that writes its arguments and
// SLURM_CONF to a file and then prints something.
func scontrol(t testing.TB, prints string) (path, said string) {
	t.Helper()
	dir := shared(t, 0o777)
	said = filepath.Join(dir, "said")
	text := "#!/bin/sh\necho \"conf=$SLURM_CONF\" \"$@\" >> " + said + "\n"
	if prints != "" {
		text += "echo '" + prints + "'\n"
	}
	for _, name := range []string{"scontrol", "sacct", "squeue", "srun"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), said
}

// TestAttackNode is a user of the node against what root types about processes, and
// against the daemon.
func TestAttackNode(t *testing.T) {
	needRoot(t)
	claims := []string{"SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=3"}

	attack(t, "forged job without cgroups", func(t *testing.T) {
		v := stepd(t, 0, "slurmstepd: [4711.0]", "node-hold 1", victim, claims...)
		holder(t, attacker, 100, claims...)
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
	})
	attack(t, "forged job that does not exist", func(t *testing.T) {
		v := holder(t, victim, 1, claims...)
		a := holder(t, attacker, 100, claims...)
		r := attach(t, nil, "--job", "4711")
		if !v.lives() || !a.lives() || r.status != 2 || !strings.Contains(r.stderr, "4711") {
			t.Errorf("status %d, victim lives: %v, attacker lives: %v\n%s", r.status, v.lives(), a.lives(), r.stderr)
		}
	})
	attack(t, "forged step with a limit of its own", func(t *testing.T) {
		dir := shared(t, 0o755)
		conf := filepath.Join(dir, "slurm.conf")
		must(t, os.WriteFile(conf, []byte("JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\n"), 0o644))
		v := stepd(t, 0, "slurmstepd: [4711.0]", "node-hold 1", victim, claims...)
		holder(t, attacker, 1, "SLURM_JOB_ID=4711", "SLURM_STEP_ID=7", "SLURM_MEM_PER_NODE=1", "SLURM_CONF="+conf)
		r := attach(t, nil, "--job", "4711")
		watchedAlone(t, r, v)
		if strings.Contains(r.stdout, "4711.7") {
			t.Error(r.stdout)
		}
	})
	attack(t, "forged job from another job's cgroup", func(t *testing.T) {
		v := stepd(t, 0, "slurmstepd: [4711.0]", "node-hold 1", victim, claims...)
		a := holder(t, attacker, 100, claims...)
		group(t, 0, "uid_1001/s0123456789ABC/step_0", v.pid)
		group(t, 0, "uid_1002/sBBBBBBBBBBBBB/step_0", a.pid)
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
	})
	attack(t, "forged task of an array", func(t *testing.T) {
		a := holder(t, attacker, 100, claims...) // its PID comes first
		v := holder(t, victim, 1, claims...)
		group(t, 0, "uid_1002/job_50/step_0", a.pid)
		group(t, 0, "uid_1001/job_4711/step_0", v.pid)
		path, _ := scontrol(t, "JobId=4711 ArrayJobId=46 ArrayTaskId=3 JobName=x UserId=u(1001) GroupId=u(1001) MCS_label=N/A JobState=RUNNING NodeList=n1")
		watchedAlone(t, attach(t, []string{path}, "--job", "46_3"), v)
		if !a.lives() {
			t.Error("the attacker's was taken for the job, and ended")
		}
	})
	attack(t, "delegated directory with the job's name", func(t *testing.T) {
		v := holder(t, victim, 1)
		a := holder(t, attacker, 100)
		group(t, 0, "uid_1001/job_4711/step_0", v.pid)
		group(t, attacker, "user@1002.service/job_4711/step_0", a.pid)
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
	})
	attack(t, "slurmstepd's title", func(t *testing.T) {
		v := stepd(t, 0, "slurmstepd: [4711.0]", "node-hold 1", victim)
		stepd(t, attacker, "slurmstepd: [4711.0]", "node-hold 100", attacker, claims...)
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
	})
	attack(t, "slurmstepd's name", func(t *testing.T) {
		// Who is called so is left out, and must not take others with it.
		v := holder(t, victim, 1)
		group(t, 0, "uid_1001/job_4711/step_0", v.pid)
		stepd(t, attacker, "slurmstepd: [4711.batch]", "node-hold 1", attacker)
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
	})
	attack(t, "set-user-ID program with slurmstepd's title", func(t *testing.T) {
		su, err := exec.LookPath("su")
		if err != nil {
			t.Skip(err)
		}
		// It waits for a password as root, with the environment that it was given.
		cmd := as(attacker, exec.Command(su, "root"))
		cmd.Args[0] = "slurmstepd: [4711.0]"
		cmd.Env = append(wardentest.Env(), claims...)
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() {
			in.Close()
			cmd.Process.Kill()
			cmd.Wait()
		}()
		r := attach(t, nil, "--job", "4711")
		if r.status != 2 || strings.Contains(r.stdout, `"decision"`) {
			t.Errorf("status %d\n%s\n%s", r.status, r.stderr, r.stdout)
		}
	})

	for name, c := range map[string]struct{ shows, args []string }{
		"giant command line":                 {[]string{"cmdline"}, nil},
		"giant command line of a worker":     {[]string{"cmdline"}, []string{"--worker-signal", "TERM", "--worker-match", "pool-worker"}},
		"giant command line and environment": {[]string{"cmdline", "environ"}, []string{"--at", "80%:signal=USR1@rank0"}},
	} {
		attack(t, name, func(t *testing.T) {
			a := act(t, as(attacker, role("node-dress", c.shows...)))
			r := attachFor(t, 75, nil, append(c.args, strconv.Itoa(a.pid))...)
			if !strings.Contains(r.stdout, `"sample"`) || r.maxRSS > mostOurs {
				t.Errorf("status %d, %d MiB\n%s", r.status, r.maxRSS>>20, r.stderr)
			}
		})
	}
	attack(t, "giant command line in limits", func(t *testing.T) {
		a := act(t, as(attacker, role("node-dress", "cmdline", "environ")))
		if r := finish(t, exec.Command(binary, "limits", "--pid", strconv.Itoa(a.pid))); r.status != 0 || r.maxRSS > mostOurs {
			t.Errorf("status %d, %d MiB\n%s", r.status, r.maxRSS>>20, r.stderr)
		}
	})
	t.Run("hostile slurm.conf", func(t *testing.T) {
		for name, make := range map[string]func(path string) error{
			"a pipe":   func(path string) error { return unix.Mkfifo(path, 0o644) },
			"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"huge": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
			},
			"many lines": func(path string) error {
				return os.WriteFile(path, bytes.Repeat([]byte("A=1\n"), 15<<20), 0o644)
			},
			"includes of itself": func(path string) error {
				return os.WriteFile(path, bytes.Repeat([]byte("include slurm.conf\n"), 20), 0o644)
			},
			"one that says what to do": func(path string) error {
				return os.WriteFile(path, []byte("JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\n"), 0o644)
			},
		} {
			attack(t, name, func(t *testing.T) {
				dir := owned(t, filepath.Join(shared(t, 0o755), "his"), attacker, 0o755)
				conf := filepath.Join(dir, "slurm.conf")
				must(t, make(conf))
				a := holder(t, attacker, 1, append(claims, "SLURM_CONF="+conf, "SLURM_MEM_PER_NODE=1")...)
				path, said := scontrol(t, "")
				cmd := exec.Command(binary, "limits", "--json", "--pid", strconv.Itoa(a.pid))
				cmd.Env = append(wardentest.Env(), path)
				r := finishWithin(t, 5*time.Second, cmd)
				called, _ := os.ReadFile(said)
				if r.status != 0 || r.maxRSS > mostOurs || strings.Contains(r.stdout+r.stderr+string(called), conf) {
					t.Errorf("status %d, %d MiB\n%s%s%s", r.status, r.maxRSS>>20, r.stdout, r.stderr, called)
				}
			})
		}
	})

	attack(t, "job ids that are none", func(t *testing.T) {
		ids := []string{"-Mevil", "1,-Mevil", "../../1", "4711 -Mevil", strings.Repeat("9", 100)}
		var wg sync.WaitGroup
		path, said := scontrol(t, "")
		for _, id := range ids {
			for _, args := range [][]string{
				// Slurm is asked when the job ends, at a moment of the first 5 seconds.
				{"run", "--record", "none", "--limit", "1M", "--at", "none", "--", "sleep", "5.1"},
				{"limits"}, {"attach", "--job", id}, {"attach", "--job=" + id}, {"status", "--job=" + id}, {"report", id}, {"trim", "--job=" + id}, {"recycle", "--job=" + id},
			} {
				cmd := exec.Command(binary, args...)
				cmd.Env = append(wardentest.Env(), path, "SLURM_JOB_ID="+id, "SLURMD_NODENAME=n1")
				wg.Add(1)
				go func() {
					defer wg.Done()
					cmd.Run()
				}()
			}
		}
		wg.Wait()
		for line := range strings.Lines(wardentest.Read(said)) {
			for _, id := range ids {
				if strings.Contains(line, id) {
					t.Errorf("a command of Slurm's was called with %s", line)
				}
			}
		}
	})

	attack(t, "PID used again", func(t *testing.T) {
		const last = "/proc/sys/kernel/ns_last_pid"
		for try := 0; ; try++ {
			old := holder(t, attacker, 100)
			events := filepath.Join(t.TempDir(), "events")
			// The rule is met by the size of the old one; the new one is above it too.
			w := exec.Command(binary, "attach", "--record", "none", "--events", events, "--limit", "500M", "--at", "none", "--at", "30%:stop", "--interval", "20ms", strconv.Itoa(old.pid))
			w.Env = wardentest.Env()
			must(t, w.Start())
			awaited(func() bool { return strings.Contains(wardentest.Read(events), `"sample"`) })
			old.end()
			if err := os.WriteFile(last, []byte(strconv.Itoa(old.pid-1)), 0); err != nil {
				w.Process.Kill()
				w.Wait()
				t.Skip(err)
			}
			v := holder(t, victim, 200)
			r := waitFor(t, w)
			if v.pid != old.pid && try < 20 {
				v.end()
				continue
			}
			if v.pid != old.pid {
				t.Skip("the PID was not given out again")
			}
			if !v.lives() || r != 0 || strings.Contains(wardentest.Read(events), `"decision"`) {
				t.Errorf("status %d, the victim lives: %v\n%s", r, v.lives(), wardentest.Read(events))
			}
			return
		}
	})
	attack(t, "processes that end while they are read", func(t *testing.T) {
		v := stepd(t, 0, "slurmstepd: [4711.0]", "node-hold 1", victim)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
						cmd := as(attacker, exec.Command("true"))
						cmd.Env = claims
						cmd.Run()
					}
				}
			}()
		}
		watchedAlone(t, attach(t, nil, "--job", "4711"), v)
		close(stop)
		wg.Wait()
	})
	attack(t, "mount namespace full of mounts", func(t *testing.T) {
		script := `mount -t tmpfs none "$1" && cd "$1" && i=0
while [ $i -lt 300 ]; do mkdir d$i && mount --bind d$i d$i; i=$((i+1)); done; mount -t tmpfs none /dev/shm; echo ready $$; cat >/dev/null`
		probe := as(attacker, exec.Command("unshare", "-Urm", "true"))
		if err := probe.Run(); err != nil {
			t.Skip("no user namespaces:", err)
		}
		a := act(t, as(attacker, exec.Command("unshare", "-Urm", "sh", "-c", script, "sh", shared(t, 0o777))))
		r := attach(t, nil, strconv.Itoa(a.cmd.Process.Pid))
		if !strings.Contains(r.stdout, `"sample"`) || r.maxRSS > mostOurs {
			t.Errorf("status %d, %d MiB\n%s", r.status, r.maxRSS>>20, r.stderr)
		}
	})
	attack(t, "name that steers a terminal", func(t *testing.T) {
		dir := shared(t, 0o755)
		program := filepath.Join(dir, "\x1b]0;x\a) R 1\n")
		self, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(program, self, 0o755)
		}
		must(t, err)
		a := act(t, as(attacker, exec.Command(program, "node-hold", "1")))
		r := attach(t, nil, strconv.Itoa(a.pid))
		if strings.ContainsAny(r.stderr, "\x1b\a") || !strings.Contains(r.stdout, `"sample"`) {
			t.Errorf("%q", r.stderr)
		}
	})
	attack(t, "stop of root's attach", func(t *testing.T) {
		v := holder(t, victim, 1)
		events := filepath.Join(t.TempDir(), "events")
		w := exec.Command(binary, "attach", "--record", "none", "--events", events, "--limit", "60M", strconv.Itoa(v.pid))
		w.Env = wardentest.Env()
		must(t, w.Start())
		awaited(func() bool { return wardentest.Read(events) != "" })
		for _, s := range []string{"-STOP", "-TERM", "-KILL"} {
			if out, err := as(attacker, exec.Command("kill", s, strconv.Itoa(w.Process.Pid))).CombinedOutput(); err == nil {
				t.Errorf("%s was sent: %s", s, out)
			}
		}
		v.end()
		if got := waitFor(t, w); got != 0 {
			t.Errorf("status %d", got)
		}
	})
}

// waitFor waits for a program that ends by itself, and gives its status.
func waitFor(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	cmd.Wait()
	if !late.Stop() {
		t.Errorf("%q does not end", cmd.Args)
	}
	return cmd.ProcessState.ExitCode()
}

// running is a daemon.
type running struct {
	cmd  *exec.Cmd
	addr string
}

// startDaemon starts rsswardend on a free port, with the memory that its unit gives it.
func startDaemon(t testing.TB, args ...string) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	d := &running{addr: l.Addr().String()}
	l.Close()
	d.cmd = exec.Command(daemon, append([]string{"--listen", d.addr, "--interval", "1s"}, args...)...)
	d.cmd.Env = append(wardentest.Env(), "GOMEMLIMIT=192MiB")
	var errs bytes.Buffer
	d.cmd.Stderr = &errs
	must(t, d.cmd.Start())
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
	})
	wardentest.Until(t, "the daemon listens", func() bool { return d.scrape() == nil })
	return d
}

// scrape is one of Prometheus's, on a connection of its own.
func (d *running) scrape() error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + d.addr + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("rsswarden_"))) {
		err = fmt.Errorf("status %d, %d bytes", resp.StatusCode, len(b))
	}
	return err
}

// peak is the most memory that it had.
func (d *running) peak() int64 {
	var kib int64
	_, rest, _ := strings.Cut(wardentest.Read(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid)), "VmHWM:")
	fmt.Sscan(rest, &kib)
	return kib << 10
}

// TestAttackDaemon is a user of the node against rsswardend.
func TestAttackDaemon(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		calls int
		text  string
	}{
		"half-sent requests":          {8000, "GET /metrics HTTP/1.1\r\nHost: x\r\n"},
		"connections that do nothing": {8000, ""},
		"huge header":                 {1000, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<16)},
		"endless first line":          {1000, "GET /" + strings.Repeat("x", 1<<16)},
		"bodies that never come":      {4000, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"},
		"many requests at once":       {2000, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 20)},
	} {
		attack(t, name, func(t *testing.T) {
			d := startDaemon(t)
			a := act(t, as(attacker, role("node-call", d.addr, strconv.Itoa(c.calls), strconv.Quote(c.text))))
			if err := d.scrape(); err != nil { // all of them are still there
				t.Errorf("scrape: %v", err)
			}
			if a.pid < c.calls/2 {
				t.Errorf("%d connections were made", a.pid)
			}
			if peak := d.peak(); peak > 96<<20 || peak == 0 {
				t.Errorf("it took %d MiB", peak>>20)
			}
		})
	}
	for name, plant := range map[string]func(path, other string) error{
		"pipe for oom.jsonl":      func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
		"link for oom.jsonl":      func(path, other string) error { return os.Symlink(other, path) },
		"link to a device":        func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"directory for oom.jsonl": func(path, _ string) error { return os.Mkdir(path, 0o777) },
		"hard link for oom.jsonl": func(path, other string) error { return os.Link(other, path) },
		"file for oom.jsonl":      func(path, _ string) error { return os.WriteFile(path, []byte("{}\n"), 0o666) },
	} {
		attack(t, name, func(t *testing.T) {
			dir := shared(t, 0o1777)
			other := filepath.Join(dir, "other")
			path := filepath.Join(dir, "oom.jsonl")
			must(t, errors.Join(os.WriteFile(other, []byte("root's"), 0o600), plant(path, other)))
			if info, err := os.Lstat(path); err != nil || !strings.HasPrefix(name, "hard") && os.Lchown(path, attacker, attacker) != nil {
				t.Fatal(info, err)
			}
			cmd := exec.Command(daemon, "--listen", "none", "--records", dir)
			cmd.Env = wardentest.Env()
			r := finishWithin(t, 5*time.Second, cmd)
			if r.status != 2 || !strings.Contains(r.stderr, "--records") || wardentest.Read(other) != "root's" {
				t.Errorf("status %d, behind it is %q\n%s", r.status, wardentest.Read(other), r.stderr)
			}
		})
	}
}
