package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Owner is who made files of a kind.
type Owner struct {
	Kind Kind
	UID  int
}

// Visible is what has a name in a /dev/shm.
type Visible struct {
	Dev   uint64 // st_dev, as [Space].Dev
	Total        // 512 times st_blocks of each file; those without a name are not in it
	By    map[Owner]Total
	// More says that the walk stopped at what it may read at most.
	More bool
	Cost time.Duration // processor time of the walk
}

// Files walks the /dev/shm of a process, on its file system only. At most most
// names are looked at, some 1.5 us each; 0 means 100,000. Directories that we may
// not read are passed over. The errors are those of [Usage].
func Files(proc string, pid, most int) (Visible, error) {
	if most <= 0 {
		most = 100_000
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	fd, _, err := openShm(proc, pid)
	if err != nil {
		return Visible{}, fmt.Errorf("cannot list /dev/shm of process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Visible{}, fmt.Errorf("cannot list /dev/shm of process %d: %w", pid, err)
	}
	w := walk{v: Visible{Dev: uint64(st.Dev), By: map[Owner]Total{}}, left: most, seen: map[uint64]bool{}}
	if err := w.list(fd, "."); err != nil {
		return Visible{}, fmt.Errorf("cannot list /dev/shm of process %d: %w", pid, err)
	}
	w.v.Cost = threadTime() - began
	return w.v, nil
}

type walk struct {
	v     Visible
	left  int
	depth int
	seen  map[uint64]bool // inodes with more than one name
}

// deepest is how many directories lie in one another at most: each keeps a
// descriptor.
const deepest = 16

func (w *walk) list(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if w.left--; w.left < 0 {
				w.v.More = true
				return nil
			}
			w.entry(fd, name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *walk) entry(at int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || uint64(st.Dev) != w.v.Dev {
		return // it was removed, or is another file system's
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if w.depth == deepest {
			w.v.More = true
			return
		}
		w.depth++
		_ = w.list(at, name)
		w.depth--
	case unix.S_IFREG:
		if st.Nlink > 1 {
			if w.seen[st.Ino] {
				return
			}
			w.seen[st.Ino] = true
		}
		size := rss.Bytes(st.Blocks) * 512
		who := Owner{kind(name), int(st.Uid)}
		t := w.v.By[who]
		w.v.By[who] = Total{t.Files + 1, t.Size + size}
		w.v.Total = Total{w.v.Files + 1, w.v.Size + size}
	}
}
