package hunt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// secret stands in files that only root or the victim can read.
const secret = "hunt-7f3a9c51-what-no-other-user-may-read"

// mostMemory is what a process of ours may use, whatever is done to what it reads.
const mostMemory = 256 << 20

// TestHammer has a user attack all that a victim's run, and root's report, status, attach,
// limits and rsswardend read, for RSSWARDEN_HUNT_HAMMER (10 s where that is not set):
// nothing is read, nothing is killed, nothing of ours grows.
func TestHammer(t *testing.T) {
	needRoot(t)
	lasts := 10 * time.Second
	if v := os.Getenv("RSSWARDEN_HUNT_HAMMER"); v != "" {
		var err error
		if lasts, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	dir := shared(t, 0o755)
	open := filepath.Join(dir, "open") // as a spool directory of a careless site
	must(t, os.Mkdir(open, 0o700))
	must(t, syscall.Chmod(open, 0o1777))
	home := owned(t, filepath.Join(dir, "victim"), victim, 0o700)
	theirs := owned(t, filepath.Join(dir, "attacker"), attacker, 0o755)
	private := owned(t, filepath.Join(dir, "private"), 0, 0o700)
	for path, uid := range map[string]int{filepath.Join(home, "secret"): victim, filepath.Join(private, "secret"): 0} {
		must(t, os.WriteFile(path, []byte(secret), 0o600))
		must(t, os.Chown(path, uid, uid))
	}

	// What is attacked: a run of the victim's, with a secret in its environment ...
	run := as(victim, exec.Command(binary, "run", "--interval", "200ms", "--limit", "500M", "--record", filepath.Join(home, "records"), "--",
		"sh", "-c", `while [ ! -e "$HOME/end" ]; do sleep .1; done; exit 23`))
	run.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TOKEN=" + secret, "RSSWARDEN_RUNTIME=" + open}
	run.Dir = home
	var said bytes.Buffer
	run.Stderr = &said
	must(t, run.Start())
	t.Cleanup(func() { run.Process.Kill() })

	// ... the daemon of root's ...
	address := freeAddress(t)
	watch := exec.Command(daemon, "--listen", address, "--interval", "1s", "--textfile", open, "--records", owned(t, filepath.Join(dir, "daemon"), 0, 0o755))
	watch.Env = append(os.Environ(), "TOKEN="+secret)
	var daemonSaid bytes.Buffer
	watch.Stderr = &daemonSaid
	must(t, watch.Start())
	daemonEnded := make(chan error, 1)
	go func() { daemonEnded <- watch.Wait() }()
	t.Cleanup(func() { watch.Process.Kill() })

	// ... and records of the attacker's, which root is asked to read.
	record := as(attacker, exec.Command(binary, "run", "--at", "1%:exec=true", "--limit", "100M", "--record", filepath.Join(theirs, "records"), "--", "sleep", "1"))
	record.Env, record.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + theirs}, theirs
	if r := finish(t, record); r.status != 0 {
		t.Fatalf("status %d\n%s", r.status, r.stderr)
	}

	loot := owned(t, filepath.Join(dir, "loot"), attacker, 0o700)
	hammer := as(attacker, role("hammer", theirs, open, loot, address, strconv.Itoa(run.Process.Pid), filepath.Join(private, "secret"), home))
	hammer.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + theirs, "SLURM_JOB_ID=1", "SLURM_CONF=" + filepath.Join(theirs, "slurm.conf")}
	hammer.SysProcAttr.Setsid = true
	hammer.Stderr = os.Stderr
	must(t, hammer.Start())
	t.Cleanup(func() {
		syscall.Kill(-hammer.Process.Pid, syscall.SIGKILL)
		hammer.Wait()
	})

	// What root does, again and again.
	var roots sync.WaitGroup
	var most int64
	var lock sync.Mutex
	ends := time.Now().Add(lasts)
	commands := [][]string{
		{"report", "--no-slurm", filepath.Join(theirs, "records")},
		{"report", "--no-slurm", "--json", filepath.Join(theirs, "records")},
		{"report", "--no-slurm", "--html", filepath.Join(open, "report.html"), filepath.Join(theirs, "records")},
		{"replay", filepath.Join(theirs, "records"), "--limit", "50M"},
		{"status"}, {"status", "--json"}, {"doctor"},
		{"limits", "--pid", strconv.Itoa(run.Process.Pid)},
		{"attach", "--job", "1", "--at", "none", "--at", "1%:stop", "--limit", "1M"},
		{"attach", "--at", "none", "--limit", "500M", strconv.Itoa(hammer.Process.Pid)},
	}
	times := make([]int, len(commands))
	for i, args := range commands {
		roots.Go(func() {
			for time.Now().Before(ends) {
				cmd := exec.Command(binary, args...)
				cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + private, "TOKEN=" + secret, "RSSWARDEN_RUNTIME=" + open}
				cmd.Dir = private
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				cmd.WaitDelay = time.Second
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				late := time.AfterFunc(30*time.Second, func() {
					t.Errorf("%q hangs", args)
					cmd.Process.Kill()
				})
				var enough *time.Timer
				if args[0] == "attach" {
					enough = time.AfterFunc(3*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
				}
				err := cmd.Wait()
				late.Stop()
				if enough != nil {
					enough.Stop()
				}
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Errorf("%q: %v", args, err)
				}
				if w := cmd.ProcessState.Sys().(syscall.WaitStatus); w.Signaled() && w.Signal() != syscall.SIGTERM {
					t.Errorf("%q: killed by %v\n%s", args, w.Signal(), &out)
				}
				if strings.Contains(out.String(), secret) {
					t.Errorf("%q prints the secret", args)
				}
				for _, c := range out.String() {
					if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c >= 0x7f && c < 0xa0 || c >= 0x202a && c <= 0x202e {
						t.Errorf("%q prints %q raw", args, c)
						break
					}
				}
				lock.Lock()
				times[i]++
				most = max(most, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
				lock.Unlock()
			}
		})
	}
	roots.Wait()
	for i, args := range commands {
		t.Logf("%4d times: rsswarden %s", times[i], strings.Join(args, " "))
	}
	report("hammer: %v, %d commands of root's, the largest %d MiB", lasts, sum(times), most>>20)
	if most > mostMemory {
		t.Errorf("a command of root's has used %d MiB", most>>20)
	}
	t.Logf("the largest command of root's has used %d MiB", most>>20)

	// All is as it was.
	select {
	case err := <-daemonEnded:
		t.Errorf("rsswardend has ended: %v\n%s", err, &daemonSaid)
	default:
	}
	for _, p := range []struct {
		name string
		pid  int
	}{{"rsswardend", watch.Process.Pid}, {"the holder of the victim's run", run.Process.Pid}} {
		if peak, err := peakMemory(p.pid); err != nil {
			t.Errorf("%s: %v", p.name, err)
		} else if t.Logf("%s has used %d MiB", p.name, peak>>20); peak > mostMemory {
			t.Errorf("%s has used %d MiB", p.name, peak>>20)
		}
	}
	syscall.Kill(-hammer.Process.Pid, syscall.SIGKILL)
	hammer.Wait()
	if err := scrape(address); err != nil {
		t.Errorf("rsswardend answers no scrape: %v\n%s", err, &daemonSaid)
	}
	must(t, os.WriteFile(filepath.Join(home, "end"), nil, 0o644))
	err := run.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 23 {
		t.Errorf("the victim's run ended with %v, not with status 23\n%s", err, &said)
	}
	if strings.Contains(said.String(), secret) {
		t.Error("the victim's run prints the secret")
	}
	found, err := os.ReadDir(loot)
	must(t, err)
	for _, f := range found {
		what, _ := os.ReadFile(filepath.Join(loot, f.Name()))
		t.Errorf("the attacker got %s", what)
	}
	if b, err := os.ReadFile(filepath.Join(private, "secret")); err != nil || string(b) != secret {
		t.Errorf("root's file is changed: %q, %v", b, err)
	}
}

func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}

// peakMemory is VmHWM of /proc/PID/status, in bytes.
func peakMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	f := strings.Fields(rest)
	if len(f) < 2 || f[1] != "kB" {
		return 0, fmt.Errorf("no VmHWM in /proc/%d/status: it has ended", pid)
	}
	n, err := strconv.ParseInt(f[0], 10, 64)
	return n << 10, err
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// scrape asks for the metrics, for half a minute at most: connections of an attacker that
// has ended are to time out first.
func scrape(address string) error {
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		client := http.Client{Timeout: 5 * time.Second}
		answer, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			last = err
			continue
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("%s, %v", answer.Status, err)
	}
	return last
}

func init() { roles["hammer"] = hammer }

// hammer attacks until it is killed. What it gets hold of it leaves in the directory loot.
func hammer(args []string) int {
	theirs, open, loot, address, target, rootSecret, home := args[0], args[1], args[2], args[3], args[4], args[5], args[6]
	// Root's reader of a record may be a process of this user's: it may be attacked too.
	got := func(how string, what []byte) {
		if bytes.Contains(what, []byte(secret)) {
			os.WriteFile(filepath.Join(loot, strings.ReplaceAll(how, "/", "_")), []byte(how), 0o600)
		}
	}
	forever := func(f func()) {
		go func() {
			for {
				f()
			}
		}()
	}

	// Records: links that change under who looks, pipes, devices, what is cut short.
	records := filepath.Join(theirs, "records")
	original := filepath.Join(theirs, "original")
	if entries, err := os.ReadDir(records); err == nil && len(entries) > 0 {
		os.CopyFS(original, os.DirFS(filepath.Join(records, entries[0].Name())))
	}
	name := filepath.Join(records, "20260101T000000Z-run-x-1")
	forever(func() {
		os.RemoveAll(name)
		switch rand.IntN(9) {
		case 0:
			os.Symlink(home, name)
		case 1:
			os.Symlink(filepath.Dir(rootSecret), name)
		case 2:
			syscall.Mkfifo(name, 0o666)
		case 3:
			os.Mkdir(name, 0o755)
			os.Symlink(rootSecret, filepath.Join(name, "data.mdb"))
		case 4:
			os.Mkdir(name, 0o755)
			os.Symlink("/dev/zero", filepath.Join(name, "data.mdb"))
		case 5:
			os.CopyFS(name, os.DirFS(original))
			os.Truncate(filepath.Join(name, "data.mdb"), int64(rand.IntN(1<<16)))
		case 6:
			os.CopyFS(name, os.DirFS(original))
			if f, err := os.OpenFile(filepath.Join(name, "data.mdb"), os.O_WRONLY, 0); err == nil {
				junk := make([]byte, 4096)
				for i := range junk {
					junk[i] = byte(rand.Uint32())
				}
				f.WriteAt(junk, 4096*int64(rand.IntN(8)))
				f.Close()
			}
		case 7:
			os.CopyFS(name, os.DirFS(original))
			os.Truncate(filepath.Join(name, "data.mdb"), 1<<40)
		case 8:
			os.CopyFS(name, os.DirFS(original))
			os.Symlink(rootSecret, filepath.Join(name, "new"))
			os.Rename(filepath.Join(name, "new"), filepath.Join(name, "data.mdb"))
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	})

	// Names that we use in a directory that all may write.
	forever(func() {
		for _, user := range []string{"0", "1001"} {
			name := filepath.Join(open, "rsswarden-"+user)
			switch rand.IntN(4) {
			case 0:
				os.Mkdir(name, 0o777)
			case 1:
				os.Symlink(theirs, name)
			case 2:
				syscall.Mkfifo(name, 0o666)
			case 3:
				os.RemoveAll(name)
			}
		}
		for _, name := range []string{"rsswardend.prom", "rsswardend.prom.tmp", "report.html", fmt.Sprint("f", rand.IntN(5000), "\x1b[2J.prom")} {
			name = filepath.Join(open, name)
			switch rand.IntN(4) {
			case 0:
				os.Symlink(rootSecret, name)
			case 1:
				syscall.Mkfifo(name, 0o666)
			case 2:
				os.WriteFile(name, bytes.Repeat([]byte("x 1\n"), 1000), 0o666)
			case 3:
				os.Remove(name)
			}
		}
		time.Sleep(200 * time.Microsecond)
	})

	// The daemon: requests that are never finished, and heads that do not end.
	for range 4 {
		forever(func() {
			c, err := net.DialTimeout("tcp", address, time.Second)
			if err != nil {
				time.Sleep(time.Millisecond)
				return
			}
			io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
			go func() {
				defer c.Close()
				for range 100 {
					if _, err := c.Write(bytes.Repeat([]byte("a"), 1<<10)); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
			time.Sleep(time.Millisecond)
		})
	}

	// Processes that say that they are a job's step, or have an endless command line.
	forever(func() {
		c := exec.Command("sleep", ".3")
		c.Args = []string{"slurmstepd: [1.0]", ".3"}
		if rand.IntN(2) == 0 {
			c.Args = []string{"sleep", ".3", strings.Repeat("\x1b]0;x\x07", 8000), "\u202e\u009b31m"}
		}
		c.Run()
	})

	// Everything that /proc has of others, the descriptors of readers that run as us, and
	// signals to all that can be signalled.
	pid, _ := strconv.Atoi(target)
	me := os.Getpid()
	forever(func() {
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range all {
			n, _ := strconv.Atoi(filepath.Base(dir))
			var st syscall.Stat_t
			if n == me || syscall.Stat(dir, &st) != nil {
				continue
			}
			exe, _ := os.Readlink(dir + "/exe")
			comm, _ := os.ReadFile(dir + "/comm")
			if session, err := unix.Getsid(n); err == nil && session == me {
				continue // our own
			}
			for _, f := range []string{"environ", "cmdline", "maps", "auxv"} {
				b, _ := os.ReadFile(dir + "/" + f)
				got(fmt.Sprintf("%s of %s %s", f, exe, comm), b)
			}
			if st.Uid == attacker { // a reader of root's
				if fd, err := unix.PidfdOpen(n, 0); err == nil {
					for i := range 64 {
						if other, err := unix.PidfdGetfd(fd, i, 0); err == nil {
							b := make([]byte, 4096)
							n, _ := unix.Pread(other, b, 0)
							got(fmt.Sprintf("descriptor %d of %s %s", i, exe, comm), b[:max(n, 0)])
							unix.Close(other)
						}
					}
					unix.Close(fd)
				}
				if unix.PtraceSeize(n) == nil {
					unix.Kill(n, unix.SIGKILL)
				}
			}
			fds, _ := filepath.Glob(dir + "/fd/*")
			for _, f := range fds {
				b := make([]byte, 4096)
				if h, err := os.OpenFile(f, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
					n, _ := h.Read(b)
					got(f, b[:max(n, 0)])
					h.Close()
				}
			}
			unix.Kill(n, unix.SIGTERM)
		}
		unix.Kill(pid, unix.SIGKILL)
		unix.Kill(-pid, unix.SIGKILL)
		time.Sleep(5 * time.Millisecond)
	})

	// Files and sockets of the victim's run.
	forever(func() {
		for _, top := range []string{open, home, "/tmp/rsswarden-1001", "/dev/shm"} {
			filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.Type()&fs.ModeNamedPipe != 0 {
					return nil
				}
				if d.Type()&fs.ModeSocket != 0 {
					if c, err := net.Dial("unixpacket", path); err == nil {
						c.Write([]byte(`{"want":"status"}`))
						c.SetDeadline(time.Now().Add(100 * time.Millisecond))
						b := make([]byte, 1<<16)
						n, _ := c.Read(b)
						got("socket "+path, b[:max(n, 0)])
						c.Close()
					}
					return nil
				}
				if d.Type().IsRegular() && !strings.HasPrefix(path, theirs) {
					b, _ := os.ReadFile(path)
					got("file "+path, b)
					os.WriteFile(path, []byte("junk"), 0o666)
				}
				return nil
			})
		}
		time.Sleep(10 * time.Millisecond)
	})
	select {}
}
