package main_test

import (
	wire "encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hungMount mounts a file system whose server does not answer: that there is a directory
// is known, and whoever looks into it waits in state D until it is killed, as with NFS
// whose server is away.
func hungMount(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("needs /dev/fuse: ", err)
	}
	if err := unix.Mount("hung", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		unix.Close(fd)
		t.Fatal(err)
	}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		serveHung(fd, stop)
	}()
	// The kernel keeps both answers.
	var st unix.Stat_t
	for _, err := range []error{unix.Stat(dir, &st), unix.Access(dir, unix.X_OK)} {
		if err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-over
	t.Cleanup(func() {
		unix.Close(fd) // each request ends with an error
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// The requests that are answered (linux/fuse.h).
const (
	fuseGetattr = 3
	fuseInit    = 26
	fuseAccess  = 34
)

// serveHung answers what the root directory is.
func serveHung(fd int, stop <-chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(p, 20); n == 0 {
			continue
		}
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		ne := wire.NativeEndian
		opcode, unique, node := ne.Uint32(buf[4:]), ne.Uint64(buf[8:]), ne.Uint64(buf[16:])
		var body []byte
		failed := int32(0)
		switch {
		case opcode == fuseInit:
			body = make([]byte, 64) // fuse_init_out
			ne.PutUint32(body, 7)
			ne.PutUint32(body[4:], 31)
			ne.PutUint32(body[20:], 4096) // max_write
		case opcode == fuseGetattr && node == 1:
			body = make([]byte, 16+88) // fuse_attr_out
			ne.PutUint64(body, 3600)   // it is valid for an hour
			ne.PutUint64(body[16:], 1) // ino
			ne.PutUint32(body[16+60:], unix.S_IFDIR|0o777)
			ne.PutUint32(body[16+64:], 2) // links
		case opcode == fuseAccess && node == 1:
			failed = -int32(unix.ENOSYS)
		default:
			continue
		}
		out := make([]byte, 16, 16+len(body))
		ne.PutUint32(out, uint32(16+len(body)))
		ne.PutUint32(out[4:], uint32(failed))
		ne.PutUint64(out[8:], unique)
		if _, err := unix.Write(fd, append(out, body...)); err != nil {
			return
		}
	}
}

// TestHungMount: a directory of ours lies on a file system that hangs. The command starts
// in time, ends as bare and in time, and rungs and alerts go on.
func TestHungMount(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *brokenRun, hung string)
		left    bool // a record is
	}{
		"events":      {func(r *brokenRun, hung string) { r.option("--events", hung+"/events") }, true},
		"textfile":    {func(r *brokenRun, hung string) { r.option("--textfile", hung) }, true},
		"hook cache":  {func(r *brokenRun, hung string) { r.cmd.Env = append(r.cmd.Env, "XDG_CACHE_HOME="+hung) }, true},
		"submit dir":  {func(r *brokenRun, hung string) { r.cmd.Dir = hung }, true},
		"state":       {func(r *brokenRun, hung string) { r.cmd.Env = append(r.cmd.Env, "XDG_STATE_HOME="+hung) }, false},
		"runtime dir": {func(r *brokenRun, hung string) { r.cmd.Env = append(r.cmd.Env, "RSSWARDEN_RUNTIME="+hung) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			r := startBroken(t, func(r *brokenRun) {
				hung := t.TempDir()
				hungMount(t, hung)
				c.prepare(r, hung)
			})
			r.hold(164)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it started after %v", took)
			}
			soon(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
			r.hold(188)
			soon(t, "the second rung told", func() bool { return r.told.has("firing 92%") })
			if took := r.end(); took > 3*time.Second {
				t.Errorf("the end took %v", took)
			}
			l, text := r.left()
			t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.stderr.String(), l)
			if c.left && (len(l.Runs) != 1 || l.Runs[0].Code == nil || l.Runs[0].Decisions != 2) {
				t.Errorf("left:\n%s", text)
			}
		})
	}
}

// TestHungRecordPlace: a --record that hangs from the start keeps no job from starting: it
// is waited for as long as for any file system, and said.
func TestHungRecordPlace(t *testing.T) {
	hung := t.TempDir()
	hungMount(t, hung)
	began := time.Now()
	_, said, err := output([]string{binary, "run", "--record", hung, "--", "sh", "-c", "exit 0"})
	if took := time.Since(began); err != nil || took > 10*time.Second ||
		!strings.Contains(said, "no answer from its file system") || !strings.Contains(said, "the journal is kept") {
		t.Errorf("%v after %v: %s", err, took, said)
	}
}
