package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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

func unmountCgroup(r *brokenRun) {
	r.shell(`nsenter --mount --target "$0" umount -R -l /sys/fs/cgroup`, fmt.Sprint(r.cmd.Process.Pid))
}

// recordNowhere has a file where the directory of the record is to be.
func recordNowhere(r *brokenRun) { r.option("--record", filepath.Join(r.bin, "rsswarden", "record")) }

func readOnlyState(r *brokenRun) {
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to mount")
	}
	r.shell(`mount -t tmpfs -o ro none "$0"`, r.state)
	r.t.Cleanup(func() { r.shell(`umount -l "$0"`, r.state) })
}
