package guest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

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
		timeout = 3 * time.Minute
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
