package faults

import (
	wire "encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// hungMount mounts a file system whose server does not answer: that there is a directory
// is known, and whoever looks into it waits in state D. Until it is killed, as with NFS
// whose server is away; or, where the server reads the requests and then says nothing, for
// as long as that server is there: nothing else ends such a thread.
func hungMount(t *testing.T, dir string, mode uint32, reads bool) {
	t.Helper()
	wardentest.NeedRoot(t, "needs root, to mount")
	// A request may be taken back between poll(2) and read(2).
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
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
		serveHung(fd, mode, stop)
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
	if reads {
		stop, over = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			swallow(fd, stop)
		}()
	}
	t.Cleanup(func() {
		if reads {
			close(stop)
			<-over
		}
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

// requests has each request taken until stop is closed.
func requests(fd int, stop <-chan struct{}, take func(request []byte)) {
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
		take(buf[:n])
	}
}

// serveHung answers what the root directory is.
func serveHung(fd int, mode uint32, stop <-chan struct{}) {
	requests(fd, stop, func(request []byte) {
		ne := wire.NativeEndian
		opcode, unique, node := ne.Uint32(request[4:]), ne.Uint64(request[8:]), ne.Uint64(request[16:])
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
			ne.PutUint32(body[16+60:], unix.S_IFDIR|mode)
			ne.PutUint32(body[16+64:], 2) // links
		case opcode == fuseAccess && node == 1:
			failed = -int32(unix.ENOSYS)
		default:
			return
		}
		out := make([]byte, 16, 16+len(body))
		ne.PutUint32(out, uint32(16+len(body)))
		ne.PutUint32(out[4:], uint32(failed))
		ne.PutUint64(out[8:], unique)
		_, _ = unix.Write(fd, append(out, body...))
	})
}

// swallow reads what is asked, and answers none of it.
func swallow(fd int, stop <-chan struct{}) { requests(fd, stop, func([]byte) {}) }

// TestHungMount: a directory of ours lies on a file system that hangs. The command starts
// in time, ends as bare and in time, and rungs and alerts go on. What has asked a server
// that has read the question is left behind, and said.
func TestHungMount(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *brokenRun, hung string)
		reads   bool // the server has read what it does not answer
		left    bool // a record is
		stuck   bool // a process of ours waits for the server, and a line says so
		ours    bool // others cannot write the directory, so it is looked into
	}{
		"events":          {prepare: func(r *brokenRun, hung string) { r.option("--events", hung+"/events") }, left: true},
		"textfile":        {prepare: func(r *brokenRun, hung string) { r.option("--textfile", hung) }, left: true},
		"hook cache":      {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "XDG_CACHE_HOME="+hung) }, left: true},
		"submit dir":      {prepare: func(r *brokenRun, hung string) { r.Cmd.Dir = hung }, left: true},
		"state":           {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "XDG_STATE_HOME="+hung) }},
		"runtime dir":     {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "RSSWARDEN_RUNTIME="+hung) }, left: true},
		"own runtime dir": {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "RSSWARDEN_RUNTIME="+hung) }, left: true, ours: true},

		"read, events": {prepare: func(r *brokenRun, hung string) { r.option("--events", hung+"/events") }, reads: true, left: true, stuck: true},
		"read, checkpoint": {prepare: func(r *brokenRun, hung string) {
			r.Cmd.Args = slices.Insert(r.Cmd.Args, 2, "--checkpoint-file", hung+"/run/model.pt", "--checkpoint-signal", "USR1")
		}, reads: true, left: true, stuck: true},
		"read, textfile":        {prepare: func(r *brokenRun, hung string) { r.option("--textfile", hung) }, reads: true, left: true, stuck: true},
		"read, hook cache":      {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "XDG_CACHE_HOME="+hung) }, reads: true, left: true, stuck: true, ours: true},
		"read, submit dir":      {prepare: func(r *brokenRun, hung string) { r.Cmd.Dir = hung }, reads: true, left: true},
		"read, state":           {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "XDG_STATE_HOME="+hung) }, reads: true},
		"read, runtime dir":     {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "RSSWARDEN_RUNTIME="+hung) }, reads: true, left: true},
		"read, own runtime dir": {prepare: func(r *brokenRun, hung string) { r.Cmd.Env = append(r.Cmd.Env, "RSSWARDEN_RUNTIME="+hung) }, reads: true, left: true, stuck: true, ours: true},
		"read, record":          {prepare: func(r *brokenRun, hung string) { r.option("--record", hung) }, reads: true, left: true, stuck: true},
	} {
		if !c.reads && name != "events" && wardentest.Few(1, 0) == 0 {
			continue // what is read is harder
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			r := startBroken(t, func(r *brokenRun) {
				hung := t.TempDir()
				mode := uint32(0o777)
				if c.ours {
					mode = 0o755
				}
				hungMount(t, hung, mode, c.reads)
				c.prepare(r, hung)
			})
			r.Hold(164)
			if took, most := time.Since(began), 4*lastWords(t); took > most {
				t.Errorf("it started after %v, of %v", took, most)
			}
			wardentest.Until(t, "the first rung told", func() bool { return r.told.has("firing 80%") })
			r.Hold(188)
			wardentest.Until(t, "the second rung told", func() bool { return r.told.has("firing 92%") })
			if took, most := r.End(), lastWords(t); took > most {
				t.Errorf("the end took %v, of %v", took, most)
			}
			l, text := r.left()
			t.Logf("told %v, stderr:\n%s\nleft %+v", r.told.all, r.Stderr.String(), l)
			if told := strings.Contains(r.Stderr.String(), "is left waiting for it"); told != c.stuck {
				t.Errorf("told of a process that is left waiting: %v", told)
			}
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
	hungMount(t, hung, 0o777, false)
	began := time.Now()
	_, said, err := wardentest.Output(binary, "run", "--record", hung, "--", "sh", "-c", "exit 0")
	if took := time.Since(began); err != nil || took > 4*lastWords(t) ||
		!strings.Contains(said, "no answer from its file system") || !strings.Contains(said, "the full record begins once it answers; the journal is kept") {
		t.Errorf("%v after %v: %s", err, took, said)
	}
}

// TestHungSiteFile: the site's file lies on a file system that reads what it is asked and
// never answers. The command starts without it and ends as bare, and it is said.
func TestHungSiteFile(t *testing.T) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Mkdir(dir+"/etc", 0o755))
	hungMount(t, dir+"/etc", 0o777, true)
	cmd := exec.Command(ofSite, "run", "--", "sh", "-c", "exit 3")
	cmd.Dir, cmd.Env = dir, wardentest.Env("XDG_STATE_HOME="+t.TempDir())
	var said strings.Builder
	cmd.Stderr = &said
	wardentest.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it has not ended") // it does when the server goes
	}
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(said.String(), "is not used: no answer from its file system within 2s, process ") {
		t.Errorf("%v\n%s", cmd.ProcessState, said.String())
	}
}
