package nodejobs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestWhatIsReadOfProcesses: of a process the size alone is opened, of all that /proc has
// of it, and that only where no cgroup has its memory: whoever runs as root reads no name,
// command line or environment that somebody has chosen.
func TestWhatIsReadOfProcesses(t *testing.T) {
	for name, want := range map[string][]string{"v1": nil, "v2": nil, "freezer": {"statm"}} {
		t.Run(name, func(t *testing.T) {
			var s *stand
			if name == "v1" {
				s = v1Stand(t)
			} else {
				s = newStand(t, archive(t, name))
			}
			for pid := 1; pid < 150; pid++ { // more than the steps have
				s.Put(rsstest.Process{PID: pid, Comm: "x", Anon: rss.MiB})
				for _, file := range []string{"comm", "cmdline", "environ", "cgroup"} {
					s.Write(fmt.Sprintf("proc/%d/%s", pid, file), "x")
				}
			}
			watch := watchOpens(t, s.Proc)
			for range 3 {
				s.look()
			}
			var got []string
			for path := range watch() {
				if pid, file, ok := strings.Cut(path, "/"); ok && strings.Trim(pid, "0123456789") == "" && !slices.Contains(got, file) {
					got = append(got, file)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q was opened of processes, want %q", got, want)
			}
		})
	}
}

// watchOpens tells which files below a directory are opened until it is asked.
func watchOpens(t *testing.T, root string) func() map[string]bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	dirs := map[int32]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		wd, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		dirs[int32(wd)], _ = filepath.Rel(root, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() map[string]bool {
		opened := map[string]bool{}
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil || n <= 0 {
				return opened
			}
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				size := int(binary.NativeEndian.Uint32(b[12:]))
				name := bytes.TrimRight(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00")
				if len(name) > 0 {
					opened[fmt.Sprintf("%s/%s", dirs[int32(binary.NativeEndian.Uint32(b))], name)] = true
				}
				b = b[unix.SizeofInotifyEvent+size:]
			}
		}
	}
}
