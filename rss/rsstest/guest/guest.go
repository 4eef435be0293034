// Package guest runs a program on another kernel than this machine's, for
// tests: as root, where it can set and break anything.
//
//	func TestInGuest(t *testing.T) {
//		out, exit := guest.Run(t, guest.Options{Binary: guest.TestBinary(t), Args: []string{"-test.run=^TestInside$"}})
//		…
//	}
//
// The kernels are Debian's for clouds, of several releases, in a virtual machine of
// QEMU's that needs no support by the processor: to boot takes three seconds, and forty
// where this machine is busy. .ci/guest gets them, each with a busybox, and
// keeps them in the user's cache; the rest of the guest is the file init.
//
// The program finds /proc, /sys, /dev, a /tmp in memory, busybox's commands in
// /bin, and cgroup v2 in /sys/fs/cgroup with its controllers for memory, pids
// and cpu given to children of the root. There is no network but lo. Users are
// root, and user with the number 1000.
package guest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kernels is what .ci/guest gets: the version of a kernel and the Debian release
// it is of, one a line. Its hash names the folder, there too.
//
//go:embed kernels
var kernels string

// Kernels returns the versions there are to boot, "6.12", the newest first.
func Kernels() []string {
	var all []string
	for line := range strings.Lines(kernels) {
		all = append(all, strings.Fields(line)[0])
	}
	return all
}

// Options says what is run in a guest.
type Options struct {
	Kernel  string // one of [Kernels]; the newest if empty
	Binary  string // a static program; it gets the name /guest/program
	Args    []string
	Env     []string          // KEY=value, beside PATH, HOME and TMPDIR
	Files   map[string]string // further files: their paths on this machine by those in the guest
	DiskMB  int               // size of an empty ext2 at /disk, 0 for none
	MemMB   int               // of memory; 512 if 0
	Timeout time.Duration     // of the program, without the boot; ten minutes if 0
}

// Run runs a program in a guest of its own. It returns what came out of it,
// standard output and error as one, and its exit status, 128 and the signal's
// number where a signal ended it. It skips the test with the reason where there
// can be no guest, and fails it where the program did not come to its end.
func Run(tb testing.TB, o Options) (output string, exit int) {
	tb.Helper()
	m := need(tb, o.Kernel)
	for tries := 1; ; tries++ {
		r, err := m.run(tb.TempDir(), o)
		switch {
		case err == nil:
			return r.output, r.exit
		case errors.Is(err, errNoBoot) && tries < mostTries:
			tb.Logf("%v; once more; its console:\n%s", err, r.console)
		default:
			tb.Fatalf("%v\nits console:\n%s", err, r.console)
		}
	}
}

// mostTries is how often a guest is booted: on a busy machine a kernel may miss
// its own clock at the start, and hang.
const mostTries = 2

// TestBinary builds the tests of the package whose test calls it, as a static
// program. It skips as [Run] does.
func TestBinary(tb testing.TB) string {
	tb.Helper()
	need(tb, "")
	path := filepath.Join(tb.TempDir(), "guest.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	return path
}

func need(tb testing.TB, kernel string) *machine {
	tb.Helper()
	m, err := find(kernel)
	if err != nil {
		tb.Skip(err)
	}
	return m
}

// machine is what guests are booted with.
type machine struct {
	qemu      string // program
	dir       string // of the kernel, busybox and modules
	clock     int    // of this machine's processor, in kHz
	bootLimit time.Duration
}

func find(kernel string) (*machine, error) {
	if kernel == "" {
		kernel = Kernels()[0]
	}
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("a guest is of amd64, this machine of %s", runtime.GOARCH)
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil, fmt.Errorf("a guest needs the package qemu-system-x86: %w", err)
	}
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, kernel)
	for _, name := range []string{"vmlinuz", "busybox"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("no kernel for a guest, .ci/guest gets one: %w", err)
		}
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	clock, err := clockOf(cpuinfo)
	if err != nil {
		return nil, err
	}
	return &machine{qemu: qemu, dir: dir, clock: clock, bootLimit: 10 * time.Minute}, nil
}

func folder() (string, error) {
	if dir := os.Getenv("RSSWARDEN_GUEST"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME, else $HOME/.cache
	if err != nil {
		return "", fmt.Errorf("no kernel for a guest: %w", err)
	}
	return filepath.Join(cache, "rsswarden-test", "guest-"+fmt.Sprintf("%x", sha256.Sum256([]byte(kernels)))[:12]), nil
}

var mhz = regexp.MustCompile(`(?m)^cpu MHz\s*:\s*(\d+)\.(\d{3})`)

// clockOf reads the frequency of the processor in kHz.
func clockOf(cpuinfo []byte) (int, error) {
	m := mhz.FindSubmatch(cpuinfo)
	if m == nil {
		return 0, errors.New("no cpu MHz in /proc/cpuinfo, which a guest needs")
	}
	return strconv.Atoi(string(m[1]) + string(m[2]))
}

// errNoBoot: the program was not started, so that it can be tried again.
var errNoBoot = errors.New("the guest has not booted")

type result struct {
	output  string
	exit    int
	console string // all output, of kernel and init too
}

// run boots a guest with what it needs put into dir.
func (m *machine) run(dir string, o Options) (result, error) {
	// No program can say by chance what init says with this word.
	word := "guest-" + rand.Text()
	initrd := filepath.Join(dir, "initrd")
	if err := m.writeInitrd(initrd, word, o); err != nil {
		return result{}, err
	}
	args := m.args(initrd, cmp.Or(o.MemMB, 512))
	if o.DiskMB > 0 {
		disk := filepath.Join(dir, "disk")
		if err := os.WriteFile(disk, nil, 0o600); err != nil {
			return result{}, err
		}
		if err := os.Truncate(disk, int64(o.DiskMB)<<20); err != nil {
			return result{}, err
		}
		args = append(args, "-drive", "id=disk,if=none,format=raw,file="+strings.ReplaceAll(disk, ",", ",,"),
			"-device", "virtio-blk-device,drive=disk")
	}
	c := &console{begin: []byte(word + " begin\n"), began: make(chan struct{})}
	err := m.boot(args, c, o.Timeout)
	r := result{console: c.String()}
	if exit, ok := r.parse(word); ok {
		r.exit = exit
		return r, nil
	}
	return r, err
}

func (m *machine) args(initrd string, memMB int) []string {
	kernel := []string{
		"console=ttyS0", "quiet", "loglevel=2", "panic=-1", "rdinit=/init", "mitigations=off",
		// The kernel would compare its clock with a timer's, which goes wrong on
		// a busy machine and leaves it hanging before its first word. Debian's has
		// 250 ticks a second, of which lpj is a quarter of a thousandth.
		"tsc_early_khz=" + strconv.Itoa(m.clock), "tsc=reliable", "lpj=" + strconv.Itoa(4*m.clock),
	}
	return []string{
		// acpi is what the guest turns itself off by.
		"-M", "microvm,acpi=on,rtc=on", "-accel", "tcg,thread=multi",
		// QEMU 7.2 gets the flags wrong after cmpxchg16b: an interrupt that comes
		// just then finds a pointer in them, and its end sets flags such as VM. The
		// kernel's allocator uses it for each object. Without it some boot in five
		// ended in a panic, or hung.
		"-cpu", "max,cx16=off",
		// With one processor some have hung.
		"-smp", "2", "-m", strconv.Itoa(memMB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-kernel", filepath.Join(m.dir, "vmlinuz"), "-initrd", initrd, "-append", strings.Join(kernel, " "),
	}
}

// boot runs QEMU until the guest has turned itself off or a time is over. Its
// error says what is wrong if no exit status came out.
func (m *machine) boot(args []string, c *console, timeout time.Duration) error {
	if timeout == 0 {
		timeout = 10 * time.Minute
	}
	// An abrupt end of this process, as by `go test -timeout`, ends QEMU too: the signal
	// is sent when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(m.qemu, args...)
	cmd.Stdout, cmd.Stderr = c, c
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start QEMU: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	began, over := c.began, time.After(m.bootLimit)
	for {
		select {
		case <-began:
			began, over = nil, time.After(timeout)
		case err := <-ended:
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			if !c.hasBegun() {
				return fmt.Errorf("%w: it ended, QEMU: %s", errNoBoot, how)
			}
			return fmt.Errorf("the guest ended without an exit status, QEMU: %s", how)
		case <-over:
			_ = cmd.Process.Kill()
			<-ended
			if !c.hasBegun() {
				return fmt.Errorf("%w after %v", errNoBoot, m.bootLimit)
			}
			return fmt.Errorf("the program had not ended after %v", timeout)
		}
	}
}

// parse takes the console apart into what came before the program, from it,
// and the line with its exit status.
func (r *result) parse(word string) (exit int, ok bool) {
	_, rest, begun := strings.Cut(r.console, word+" begin\n")
	// init begins a line for it, whether or not the program had ended its own.
	output, status, ended := strings.Cut(rest, "\n"+word+" exit ")
	status, _, whole := strings.Cut(status, "\n")
	exit, err := strconv.Atoi(status)
	if !begun || !ended || !whole || err != nil {
		return 0, false
	}
	r.output = output
	return exit, true
}

// console takes what the guest says, and tells when its program was begun.
type console struct {
	begin []byte
	began chan struct{}

	mu  sync.Mutex
	all bytes.Buffer
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Write(b)
	if !c.hasBegun() && bytes.Contains(c.all.Bytes(), c.begin) {
		close(c.began)
	}
	return len(b), nil
}

func (c *console) hasBegun() bool {
	select {
	case <-c.began:
		return true
	default:
		return false
	}
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}
