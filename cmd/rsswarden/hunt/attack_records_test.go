package hunt

import (
	"bufio"
	"bytes"
	enc "encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"golang.org/x/sys/unix"
)

func init() {
	roles["exchange"] = exchange
	roles["answer"] = answer
	roles["steal"] = steal
	roles["cut"] = cut
	roles["measure"] = measure
	roles["lead"] = lead
}

// rootsWord stands in files that no attack may show.
const rootsWord = "only-root-reads-this"

// TestAttackRecords: root, and a victim, read what the attacker has made to be a record or
// a journal, or has put where one would be.
func TestAttackRecords(t *testing.T) {
	needRoot(t)
	w := newRecordWorld(t)

	// Each is one line that says what is wrong, soon, and exit status 1.
	for _, c := range []struct {
		name string
		make func(t *testing.T, at string) error // what root is asked about
		want string                              // of standard error
	}{
		{"a record that is missing", func(*testing.T, string) error { return nil }, "no such file or directory"},
		{"a FIFO for a record", func(_ *testing.T, at string) error { return unix.Mkfifo(at, 0o666) }, "a FIFO"},
		{"a FIFO for the data", func(t *testing.T, at string) error {
			return unix.Mkfifo(owned(t, at, attacker, 0o755)+"/data.mdb", 0o666)
		}, "a FIFO"},
		{"a device for a record", func(_ *testing.T, at string) error { return unix.Mknod(at, unix.S_IFCHR|0o666, 1<<8|5) }, "a device"},
		{"a device for the data", func(t *testing.T, at string) error {
			return unix.Mknod(owned(t, at, attacker, 0o755)+"/data.mdb", unix.S_IFCHR|0o666, 1<<8|5)
		}, "a device"},
		{"a link to a device for a record", func(_ *testing.T, at string) error { return linkTo("/dev/zero", at) }, "belongs to another user"},
		{"a link to a device for the data", func(t *testing.T, at string) error {
			return linkTo("/dev/zero", owned(t, at, attacker, 0o755)+"/data.mdb")
		}, "a link"},
		{"a socket for a record", func(t *testing.T, at string) error {
			l, err := net.Listen("unix", at)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}, "a socket"},
		{"a directory for the data", func(t *testing.T, at string) error {
			owned(t, owned(t, at, attacker, 0o755)+"/data.mdb", attacker, 0o755)
			return nil
		}, "a directory"},
		{"a link to a secret for a record", func(_ *testing.T, at string) error { return linkTo(w.secret, at) }, "belongs to another user"},
		{"a link to a secret for the data", func(t *testing.T, at string) error {
			return linkTo(w.secret, owned(t, at, attacker, 0o755)+"/data.mdb")
		}, "a link"},
		{"a link to a directory of root's", func(_ *testing.T, at string) error { return linkTo(w.root, at) }, "belongs to another user"},
		{"a link two levels up", func(t *testing.T, at string) error {
			return linkTo(filepath.Dir(w.root), at)
		}, "belongs to another user"},
		{"a hard link to a secret for a journal", func(_ *testing.T, at string) error { return os.Link(w.secret, at) }, "not a record"},
		{"a hard link to a secret for the data", func(t *testing.T, at string) error {
			return os.Link(w.secret, owned(t, at, attacker, 0o755)+"/data.mdb")
		}, "not a record"},
		{"a sparse file of 1 TiB", func(t *testing.T, at string) error {
			data := w.copyRecord(t, at)
			return os.Truncate(data, 1<<40)
		}, "1.00 TiB"},
		{"data of another kind", func(t *testing.T, at string) error {
			return giveFile(filepath.Join(owned(t, at, attacker, 0o755), "data.mdb"), bytes.Repeat([]byte("evil"), 64<<10))
		}, "not a record"},
		{"data that is garbage but for its head", func(t *testing.T, at string) error {
			data := w.copyRecord(t, at)
			info, err := os.Stat(data)
			must(t, err)
			return patch(data, 8192, bytes.Repeat([]byte{0xff, 3}, int(info.Size()-8192)/2))
		}, "cannot read record"},
		{"a journal of deep JSON", func(_ *testing.T, at string) error {
			return giveFile(at, []byte(strings.Repeat("[", 1<<20)+"\n"))
		}, "not a record"},
		{"a journal whose run is deep JSON", func(_ *testing.T, at string) error {
			return giveFile(at, []byte(`{"event":"run","run":{"v":1,"id":"x","command":`+strings.Repeat(`[`, 1<<19)+"\n"))
		}, "not a record"},
		{"an endless first line", func(_ *testing.T, at string) error {
			return giveFile(at, bytes.Repeat([]byte("x"), 16<<20))
		}, "not a record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := filepath.Join(w.dir, strconv.FormatInt(time.Now().UnixNano(), 36))
			must(t, c.make(t, at))
			t.Cleanup(func() { os.RemoveAll(at) })
			_ = os.Lchown(at, attacker, attacker)
			ask := at
			if c.name == "a link two levels up" {
				ask = filepath.Join(at, filepath.Base(w.root))
			}
			for _, command := range []string{"report", "replay"} {
				r := w.read(t, command, ask)
				if r.status != 1 {
					t.Errorf("%s ended with %d, want 1\n%s", command, r.status, r.stderr)
				}
				if first, _, _ := strings.Cut(r.stderr, "\n"); !strings.Contains(first, c.want) || strings.Count(r.stderr, "\n") > 2 {
					t.Errorf("%s says, in want of %q:\n%s", command, c.want, r.stderr)
				}
			}
		})
	}

	// Each is a bomb, or lies: root reads what can be read.
	for _, c := range []struct {
		name string
		make func(t *testing.T, at string) error
		want string // of the output, empty for anything
	}{
		{"a start event of 8 MiB", func(t *testing.T, at string) error {
			return plantRecord(owned(t, at, attacker, 0o755), []plantedEntry{{'d', 1, wide(`"limits":[`, "{},", "{}]", 7<<20)}})
		}, ""},
		{"a hundred start events of 600 KiB", func(t *testing.T, at string) error {
			var all []plantedEntry
			for n := range uint64(100) {
				all = append(all, plantedEntry{'d', n + 1, wide(`"cannot":[`, `"",`, `""]`, 600<<10)})
			}
			return plantRecord(owned(t, at, attacker, 0o755), all)
		}, ""},
		{"a million small events", func(t *testing.T, at string) error {
			all := make([]plantedEntry, 700_000)
			for n := range all {
				all[n] = plantedEntry{'d', uint64(n) + 1, []byte(`{"event":"exit"}`)}
			}
			return plantRecord(owned(t, at, attacker, 0o755), all)
		}, ""},
		{"a large record with a damaged page", func(t *testing.T, at string) error {
			must(t, plantRecord(owned(t, at, attacker, 0o755), filler(460)))
			return patch(filepath.Join(at, "data.mdb"), 20<<20, make([]byte, 4096))
		}, ""},
		{"many samples of many processes", func(t *testing.T, at string) error {
			return plantRecord(owned(t, at, attacker, 0o755), stillness())
		}, ""},
		{"a journal of a million lines", func(_ *testing.T, at string) error {
			return giveFile(at, append(firstLine(w.root), bytes.Repeat([]byte(`{"event":"decision"}`+"\n"), 1_000_000)...))
		}, ""},
		{"a journal of decisions and outcomes", func(_ *testing.T, at string) error {
			b := firstLine(w.root)
			for n := range 40_000 {
				b = fmt.Appendf(b, `{"event":"decision","id":%d}`+"\n"+`{"event":"outcome","decision":%d}`+"\n", n, n)
			}
			return giveFile(at, b)
		}, ""},
		{"a journal of samples", func(_ *testing.T, at string) error {
			return giveFile(at, append(firstLine(w.root), bytes.Repeat([]byte(`{"event":"sample"}`+"\n"), 200_000)...))
		}, ""},
		{"a journal that names a record of root's", func(_ *testing.T, at string) error {
			return giveFile(at, firstLine(w.root))
		}, ""},
		{"a watcher that sends 8 MiB", func(t *testing.T, at string) error {
			w.copyRecord(t, at)
			w.listen(t, at, "wide")
			return nil
		}, ""},
		{"a watcher that sends a byte a second", func(t *testing.T, at string) error {
			w.copyRecord(t, at)
			w.listen(t, at, "slow")
			return nil
		}, ""},
		{"a link to another's socket for the watcher", func(t *testing.T, at string) error {
			w.copyRecord(t, at)
			return linkTo(w.socket(t), filepath.Join(at, "live"))
		}, ""},
		{"a FIFO for a directory of records", func(t *testing.T, at string) error {
			return unix.Mkfifo(owned(t, at, attacker, 0o755)+"/records", 0o666)
		}, "no record"},
		{"a device for a directory of records", func(t *testing.T, at string) error {
			return unix.Mknod(owned(t, at, attacker, 0o755)+"/.rsswarden", unix.S_IFCHR|0o666, 1<<8|5)
		}, "no record"},
		{"a FIFO for the lock file", func(t *testing.T, at string) error {
			w.copyRecord(t, at)
			return unix.Mkfifo(at+"/lock.mdb", 0o666)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := filepath.Join(w.dir, "20260102T030405Z-run-node-"+strconv.FormatInt(time.Now().UnixNano(), 10))
			must(t, c.make(t, at))
			t.Cleanup(func() { os.RemoveAll(at) })
			_ = os.Lchown(at, attacker, attacker)
			for _, command := range []string{"report", "replay"} {
				if r := w.read(t, command, at); !strings.Contains(r.stdout+r.stderr, c.want) {
					t.Errorf("%s says, in want of %q:\n%s%s", command, c.want, r.stdout, r.stderr)
				}
			}
		})
	}

	t.Run("links that change while root reads", func(t *testing.T) {
		// The one leads to a record of root's, the other to one that LMDB must not open as
		// root. Whichever root's report meets, that holds.
		theirs := filepath.Join(w.dir, "theirs")
		w.copyRecord(t, theirs)
		stop := w.start(t, role("exchange", filepath.Join(w.dir, "there"), theirs, w.root))
		defer stop()
		for range 12 {
			w.traced(t, filepath.Join(w.dir, "there"))
		}
	})
	t.Run("files that change while root reads", func(t *testing.T) {
		dir := owned(t, filepath.Join(w.dir, "changing"), attacker, 0o755)
		w.copyRecord(t, filepath.Join(dir, "a"))
		stop := w.start(t, role("exchange", filepath.Join(dir, "data.mdb"), filepath.Join(dir, "a/data.mdb"), filepath.Join(w.root, "data.mdb")))
		defer stop()
		for range 12 {
			w.traced(t, dir)
		}
	})
	t.Run("directories that change while root reads", func(t *testing.T) {
		a, b := filepath.Join(w.dir, "one"), filepath.Join(w.dir, "other")
		w.copyRecord(t, a)
		must(t, os.Link(filepath.Join(w.root, "data.mdb"), filepath.Join(owned(t, b, attacker, 0o755), "data.mdb")))
		stop := w.start(t, role("exchange", a, b))
		defer stop()
		for range 12 {
			w.traced(t, a)
		}
	})
	t.Run("a record that root owns in the attacker's directory", func(t *testing.T) {
		dir := filepath.Join(w.dir, "copied")
		data := w.copyRecord(t, dir)
		must(t, os.Chown(data, 0, 0))
		w.traced(t, dir)
	})
	t.Run("a record that is cut off while root reads", func(t *testing.T) {
		dir := filepath.Join(w.dir, "cut")
		data := w.copyRecord(t, dir)
		stop := w.start(t, role("cut", data))
		defer stop()
		for range 12 {
			if r := w.read(t, "report", dir); strings.Contains(r.stderr, "SIGBUS") {
				t.Fatalf("the file changed under LMDB:\n%s", r.stderr)
			}
		}
	})
	for _, thief := range []uint32{attacker, 65534} {
		t.Run(fmt.Sprintf("descriptors of what reads, taken by user %d", thief), func(t *testing.T) {
			w.stolen(t, thief)
		})
	}
	t.Run("places of the attacker's for records", func(t *testing.T) { w.places(t) })
	t.Run("many large records", func(t *testing.T) {
		dir := owned(t, filepath.Join(w.dir, "many"), attacker, 0o755)
		for n := range 4 {
			in := owned(t, filepath.Join(dir, fmt.Sprintf("2026010%dT030405Z-7.0.0-node-1", n+1)), attacker, 0o755)
			must(t, plantRecord(in, filler(460)))
		}
		defer os.RemoveAll(dir)
		w.read(t, "report", dir)
	})
	for _, list := range []string{"limits", "procs", "ranks"} {
		t.Run("a leader whose status has a million "+list, func(t *testing.T) {
			in := shared(t, 0o755)
			at := owned(t, owned(t, filepath.Join(in, "rsswarden-1001"), victim, 0o700)+"/lead.7@node", victim, 0o700)
			cmd := as(victim, role("lead", filepath.Join(at, "control"), list))
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			defer func() { cmd.Process.Kill(); _ = cmd.Wait() }()
			_, err = out.Read(make([]byte, 1))
			must(t, err)
			r := bounded(t, "/", func(c *exec.Cmd) {
				as(victim, c).Env = []string{"PATH=" + os.Getenv("PATH"), "RSSWARDEN_RUNTIME=" + in}
			}, binary, "status")
			if r.status != 1 || !strings.HasPrefix(r.stderr, "error: ") {
				t.Errorf("it ended with %d\n%.1000s", r.status, r.stderr)
			}
		})
	}
}

// recordWorld is where the attacker lies in wait.
type recordWorld struct {
	dir    string // of the attacker
	root   string // a record of root's, which no other user may read
	secret string // a file of root's
	theirs string // a record of the attacker's
}

func newRecordWorld(t *testing.T) *recordWorld {
	top := shared(t, 0o755)
	w := &recordWorld{dir: owned(t, filepath.Join(top, "attacker"), attacker, 0o755), secret: filepath.Join(top, "secret")}
	must(t, os.WriteFile(w.secret, []byte(rootsWord+"\n"), 0o600))
	make := func(in, word string, as func(*exec.Cmd) *exec.Cmd) string {
		cmd := as(exec.Command(binary, "run", "--record", in, "--limit", "1M", "--at", "none", "--at", "1%:warn", "--", "sh", "-c", "sleep .3; : "+word))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(in), "RSSWARDEN_RUNTIME=" + w.dir}
		r := finish(t, cmd)
		found, _ := filepath.Glob(in + "/*/data.mdb")
		if len(found) != 1 {
			t.Fatalf("no record\n%s", r.stderr)
		}
		return filepath.Dir(found[0])
	}
	w.root = make(filepath.Join(owned(t, filepath.Join(top, "root"), 0, 0o700), "records"), rootsWord, func(c *exec.Cmd) *exec.Cmd { return c })
	w.theirs = make(filepath.Join(w.dir, "records"), "", func(c *exec.Cmd) *exec.Cmd { return as(attacker, c) })
	return w
}

// read has root read what the attacker has made, and bounds what it may take.
func (w *recordWorld) read(t *testing.T, command, at string) result {
	t.Helper()
	args := []string{binary, command, at}
	if command == "report" {
		args = append(args, "--no-slurm")
	}
	r := bounded(t, w.dir, nil, args...)
	if strings.Contains(r.stdout+r.stderr, rootsWord) && !strings.HasPrefix(at, w.root) {
		t.Errorf("%s shows a secret:\n%s%s", command, r.stdout, r.stderr)
	}
	if strings.Contains(r.stderr, "goroutine") || r.status > 2 {
		t.Errorf("%s ended with %d\n%s", command, r.status, r.stderr)
	}
	return r
}

// touch is what the machine takes for as many pages as a command of [bounded] may have: 20 ms as
// a rule, two seconds in some virtual machines.
var touch = sync.OnceValue(func() time.Duration {
	memory, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0
	}
	defer unix.Munmap(memory)
	runtime.LockOSThread() // whose times these are
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &before)
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 1
	}
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
	return 4 * time.Duration(after.Stime.Nano()+after.Utime.Nano()-before.Stime.Nano()-before.Utime.Nano())
})

// bounded runs a command and fails the test where it takes more than 256 MiB, or two
// seconds of a processor beside what so many pages take. On a busy machine it may take longer in all,
// up to 20 s.
func bounded(t *testing.T, dir string, how func(*exec.Cmd), args ...string) result {
	t.Helper()
	told, tell, err := os.Pipe()
	must(t, err)
	defer told.Close()
	cmd := role("measure", args...)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{tell}
	if how != nil {
		how(cmd)
	}
	r := finishWithin(t, 20*time.Second, cmd)
	tell.Close()
	var peak int64
	var busy time.Duration
	if _, err := fmt.Fscan(told, &peak, &busy); err != nil {
		t.Fatal(err)
	}
	if peak > 256<<20 || busy > 2*time.Second+touch() {
		t.Errorf("%q took %d MiB, %v, of which it was busy for %v", args[1:], peak>>20, r.took, busy)
	}
	t.Logf("%s: %d MiB, busy for %v", args[1], peak>>20, busy)
	return r
}

// measure runs a command and writes to descriptor 3 its peak of RSS and the time that it
// was busy for, its children included. It is a process of its own since a child begins with
// the peak of its parent (setmax_mm_hiwater_rss in fs/exec.c).
func measure(args []string) int {
	syscall.CloseOnExec(3)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	fmt.Fprintln(os.NewFile(3, "told"), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10, int64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
	return cmd.ProcessState.ExitCode()
}

// traced has root read a record, and fails the test where LMDB works with root's rights on
// it: a file that is mapped shared before the process has changed its user.
func (w *recordWorld) traced(t *testing.T, at string) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace, to see what is opened with which rights")
	}
	log := filepath.Join(t.TempDir(), "strace")
	finish(t, exec.Command("strace", "-f", "-qq", "-o", log, "-e", "trace=execve,setuid,mmap", "-e", "signal=none", binary, "report", "--no-slurm", at))
	text, err := os.ReadFile(log)
	must(t, err)
	reads, mapped := false, false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.Contains(line, `"export-record"`):
			reads, mapped = true, false
		case regexp.MustCompile(`setuid\([1-9]`).MatchString(line):
			reads = false
		case reads && regexp.MustCompile(`MAP_SHARED, [0-9]`).MatchString(line):
			mapped = true
		}
		if mapped {
			t.Fatalf("LMDB opens it as root:\n%s", text)
		}
	}
}

// stolen has root read a record over and over while another user looks for descriptors of
// root's in whatever reads it.
func (w *recordWorld) stolen(t *testing.T, thief uint32) {
	open, err := os.Open(w.secret)
	must(t, err)
	defer open.Close()
	dir := filepath.Join(w.dir, "large")
	if _, err := os.Stat(dir); err != nil {
		// What reads it lives for a while.
		must(t, plantRecord(owned(t, dir, attacker, 0o755), filler(100)))
	}
	cmd := as(thief, role("steal", dir))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	<-lines // it looks
	for range 4 {
		report := exec.Command(binary, "report", "--no-slurm", dir)
		report.ExtraFiles = []*os.File{open, open} // as a shell of root's may have left them open
		finish(t, report)
	}
	cmd.Process.Signal(unix.SIGTERM)
	met := 0
	for line := range lines {
		if line == "met" {
			met++
			continue
		}
		t.Errorf("user %d: %s", thief, line)
	}
	_ = cmd.Wait()
	if met == 0 {
		t.Error("what reads a record was never met")
	}
}

// places has a victim keep records where the attacker was first.
func (w *recordWorld) places(t *testing.T) {
	top := shared(t, 0o1777)
	trap := owned(t, filepath.Join(top, "trap"), victim, 0o755) // the victim's own, of which the attacker knows
	for _, c := range []struct {
		name string
		env  func(t *testing.T, in string) []string
	}{
		{"a directory in the way", func(t *testing.T, in string) []string {
			owned(t, owned(t, filepath.Join(in, "rsswarden-1001"), attacker, 0o777)+"/records", attacker, 0o777)
			return []string{"RSSWARDEN_RUNTIME=" + in}
		}},
		{"a link in the way", func(t *testing.T, in string) []string {
			must(t, linkTo(trap, filepath.Join(in, "rsswarden-1001")))
			return []string{"RSSWARDEN_RUNTIME=" + in}
		}},
		{"a link two levels up", func(t *testing.T, in string) []string {
			must(t, linkTo(trap, filepath.Join(in, "state")))
			return []string{"XDG_STATE_HOME=" + filepath.Join(in, "state")}
		}},
		{"a link four levels up", func(t *testing.T, in string) []string {
			owned(t, owned(t, trap+"/a", victim, 0o755)+"/b", victim, 0o755)
			must(t, linkTo(trap, filepath.Join(in, "up")))
			return []string{"XDG_STATE_HOME=" + filepath.Join(in, "up/a/b")}
		}},
		{"a link to where a job was submitted from", func(t *testing.T, in string) []string {
			must(t, linkTo(trap, filepath.Join(in, "submit")))
			return []string{"SLURM_JOB_ID=7", "SLURM_SUBMIT_DIR=" + filepath.Join(in, "submit")}
		}},
		{"a set-group-ID directory with a planted journal directory", func(t *testing.T, in string) []string {
			dir := owned(t, filepath.Join(in, "team"), victim, 0o2777)
			owned(t, filepath.Join(dir, ".rsswarden"), attacker, 0o2777)
			return []string{"SLURM_JOB_ID=7", "SLURM_SUBMIT_DIR=" + dir}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := filepath.Join(top, strconv.FormatInt(time.Now().UnixNano(), 36))
			must(t, os.Mkdir(in, 0o755))
			must(t, syscall.Chmod(in, 0o1777))
			cmd := as(victim, exec.Command(binary, "run", "--limit", "1M", "--at", "none", "--at", "1%:warn", "--", "sh", "-c", "sleep .2; exit 3"))
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + owned(t, in+"/own", victim, 0o700)}, c.env(t, in)...)
			if r := finish(t, cmd); r.status != 3 {
				t.Errorf("the command ended with %d\n%s", r.status, r.stderr)
			}
			for _, dir := range []string{trap, in} {
				_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
					name := filepath.Base(path)
					if err == nil && !strings.HasPrefix(path, in+"/own") && (name == "data.mdb" || strings.HasSuffix(name, ".jsonl")) {
						t.Errorf("it is kept in %s", path)
					}
					return nil
				})
			}
		})
	}
}

// start starts a role of the attacker's, and returns what ends it.
func (w *recordWorld) start(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	out, err := as(attacker, cmd).StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = out.Read(make([]byte, 1)) // it has begun
	must(t, err)
	return func() { cmd.Process.Kill(); _ = cmd.Wait() }
}

// listen has the attacker answer as the watcher of a record.
func (w *recordWorld) listen(t *testing.T, at, how string) {
	t.Cleanup(w.start(t, role("answer", filepath.Join(at, "live"), how)))
}

// socket is one of root's, that takes no stranger's word.
func (w *recordWorld) socket(t *testing.T) string {
	path := filepath.Join(filepath.Dir(w.dir), "socket")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("root's socket was connected to")
			c.Close()
		}
	}()
	return path
}

// copyRecord makes a record of the attacker's at a path and returns its data file.
func (w *recordWorld) copyRecord(t *testing.T, at string) string {
	b, err := os.ReadFile(filepath.Join(w.theirs, "data.mdb"))
	must(t, err)
	path := filepath.Join(owned(t, at, attacker, 0o755), "data.mdb")
	must(t, giveFile(path, b))
	return path
}

// linkTo makes a link of the attacker's.
func linkTo(to, at string) error {
	if err := os.Symlink(to, at); err != nil {
		return err
	}
	return os.Lchown(at, attacker, attacker)
}

// giveFile makes a file of the attacker's.
func giveFile(at string, b []byte) error {
	if err := os.WriteFile(at, b, 0o644); err != nil {
		return err
	}
	return os.Chown(at, attacker, attacker)
}

func patch(path string, at int64, with []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(with, at)
	return err
}

// plantedEntry is an entry of a record.
type plantedEntry struct {
	kind  byte
	n     uint64
	value []byte
}

func (p plantedEntry) key() []byte { return enc.BigEndian.AppendUint64([]byte{p.kind}, p.n) }

// sealed is the value as a record has it: behind the CRC-32C of key and value.
func (p plantedEntry) sealed() []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(p.key(), table), table, p.value)
	return append(enc.BigEndian.AppendUint32(nil, sum), p.value...)
}

var plantedMeta = plantedEntry{'a', 0, []byte(`{"v":1,"id":"x","start":"2026-01-02T03:04:05Z"}`)}

// plantRecord makes a record of the attacker's with these entries.
func plantRecord(dir string, all []plantedEntry) error {
	env, err := lmdb.NewEnv()
	if err != nil {
		return err
	}
	defer env.Close()
	path := filepath.Join(dir, "data.mdb")
	if err := env.SetMapSize(64 << 20); err != nil {
		return err
	}
	if err := env.Open(path, lmdb.NoSubdir|lmdb.NoLock|lmdb.NoSync, 0o644); err != nil {
		return err
	}
	err = env.Update(func(txn *lmdb.Txn) error {
		dbi, err := txn.OpenRoot(0)
		for _, p := range slices.Insert(slices.Clone(all), 0, plantedMeta) {
			if err == nil {
				err = txn.Put(dbi, p.key(), p.sealed(), 0)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.Chown(path, attacker, attacker)
}

// wide is a start event with an array of so many bytes.
func wide(begin, element, end string, size int) []byte {
	return []byte(`{"v":1,"event":"start",` + begin + strings.Repeat(element, size/len(element)) + end + "}")
}

// stillness are blocks of samples in which 60,000 processes have not changed, a sample for
// each five bytes.
func stillness() []plantedEntry {
	all := []plantedEntry{}
	for n := range uint64(60_000) {
		all = append(all, plantedEntry{'c', n, fmt.Appendf(nil, `{"id":{"pid":%d}}`, n+1)})
	}
	block := []byte{0, 1, 0, 0, 0} // tier, ms, flags, no limits, none gone
	block = enc.AppendUvarint(block, 60_000)
	for n := range uint64(60_000) {
		block = enc.AppendUvarint(enc.AppendUvarint(block, n), n)
	}
	block = enc.AppendUvarint(block, 60_000)
	same := enc.AppendUvarint([]byte{1, 6}, 60_000)
	block = append(block, bytes.Repeat(same, 1_000_000)...)
	return append(all, plantedEntry{'f', 1, block})
}

// filler makes a record large: 460 are nearly as much as one can have.
func filler(n int) []plantedEntry {
	all := make([]plantedEntry, n)
	for n := range all {
		all[n] = plantedEntry{'f', uint64(n), make([]byte, 128<<10)}
	}
	return all
}

// firstLine begins a journal of a run that has left a record there.
func firstLine(record string) []byte {
	return fmt.Appendf(nil, `{"v":1,"event":"run","run":{"v":1,"id":%q,"start":"2026-01-02T03:04:05Z","record":%q}}`+"\n", filepath.Base(record), record)
}

// exchange has a name lead to one path and to another in turn, or exchanges two names,
// for as long as it lives.
func exchange(args []string) int {
	at := args[0]
	if len(args) == 2 { // both are there
		fmt.Println("began")
		for unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE) == nil {
		}
		return 1
	}
	for i := 0; ; i++ {
		next := at + ".next"
		_ = os.Remove(next)
		if os.Symlink(args[1+i%2], next) != nil || os.Rename(next, at) != nil {
			return 1
		}
		if i == 0 {
			fmt.Println("began")
		}
	}
}

// cut cuts a file off and writes it again, for as long as it lives.
func cut(args []string) int {
	whole, err := os.ReadFile(args[0])
	f, err2 := os.OpenFile(args[0], os.O_WRONLY, 0)
	if err != nil || err2 != nil {
		return 1
	}
	fmt.Println("began")
	for {
		_ = f.Truncate(8192)
		time.Sleep(time.Millisecond)
		_, _ = f.WriteAt(whole, 0)
		time.Sleep(time.Millisecond)
	}
}

// answer is a watcher that gives out no record of a run.
func answer(args []string) int {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return 1
	}
	fmt.Println("began")
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer c.Close()
			frame(c, plantedMeta)
			if args[1] == "wide" {
				for n := range uint64(8) {
					frame(c, plantedEntry{'d', n + 1, wide(`"limits":[`, "{},", "{}]", 7<<20)})
				}
				return
			}
			for {
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
	}
}

// lead answers as the leader of a node does, at length.
func lead(args []string) int {
	l, err := net.Listen("unix", args[0])
	if err != nil || os.Chmod(args[0], 0o600) != nil {
		return 1
	}
	fmt.Println("began")
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		body := `{"v":1,"node":"node","job":"7","` + args[1] + `":[` + strings.Repeat("{},", 2_700_000) + "{}]}"
		_, _ = c.Read(make([]byte, 4096))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		c.Close()
	}
}

func frame(w io.Writer, p plantedEntry) {
	v := p.sealed()
	head := enc.BigEndian.AppendUint32(enc.BigEndian.AppendUint32(nil, uint32(len(p.key()))), uint32(len(v)))
	_, _ = w.Write(slices.Concat(head, p.key(), v))
}

// steal looks for processes that read a record of a directory, and for what it can get of
// them: by pidfd_getfd(2), by ptrace(2) and in /proc. It prints "met" for each that it met.
// The thief may have processes of its own that read another record.
func steal(args []string) int {
	fmt.Println("began")
	met := map[int]bool{}
	for {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return 1
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() {
				continue
			}
			line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if err != nil || !bytes.Contains(line, []byte("export-record")) || !startedFor(pid, args[0]) {
				continue
			}
			if !met[pid] {
				met[pid] = true
				fmt.Println("met")
			}
			stealFrom(pid)
		}
	}
}

// startedFor says whether the parent of a process has dir in its command line.
func startedFor(pid int, dir string) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // state, parent
	if len(fields) < 2 {
		return false
	}
	line, _ := os.ReadFile("/proc/" + fields[1] + "/cmdline")
	return bytes.Contains(line, []byte(dir))
}

func stealFrom(pid int) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		for n := range 16 {
			if got, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				var buf [64]byte
				k, _ := unix.Pread(got, buf[:], 0)
				fmt.Printf("took descriptor %d: %q\n", n, buf[:max(k, 0)])
				unix.Close(got)
			}
		}
		unix.Close(fd)
	}
	if unix.PtraceSeize(pid) == nil {
		fmt.Println("traces it")
		_ = unix.PtraceDetach(pid)
	}
	if fd, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err == nil {
		fmt.Println("reads its memory")
		fd.Close()
	}
	if _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		fmt.Println("lists its descriptors")
	}
}
