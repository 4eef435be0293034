package textfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/proctree"
)

// A run that is killed with all of its processes leaves its file behind, and
// node_exporter shows for ever what stood in it. The next run of the same user on the
// node removes it.

// sweepEvery is how often it is looked for such files.
const sweepEvery = time.Hour

// silent is how old the file is of a run whose process cannot be looked for, because it
// was in another PID namespace or before another boot. It is more than the longest
// --interval; on a file system that several nodes share two may have one name.
const silent = 2 * time.Hour

// mostNames is how many names of a directory are looked at, in pieces of pieceNames: every
// user may be able to make files in it.
const (
	mostNames  = 1 << 20
	pieceNames = 1024
)

// sweep removes from dir the files of dead runs of the user and node. Whose process
// lives, or may live, is left alone, and so is what others own.
func sweep(dir string, me Name, proc string, uid int, now time.Time) {
	d, err := os.Open(dir)
	if err != nil {
		return // as the write will tell
	}
	defer d.Close()
	for seen := 0; seen < mostNames; {
		names, err := d.Readdirnames(pieceNames)
		for _, file := range names {
			sweepFile(dir, file, me, proc, uid, now)
		}
		if err != nil || len(names) == 0 {
			return
		}
		seen += len(names)
	}
}

func sweepFile(dir, file string, me Name, proc string, uid int, now time.Time) {
	n, ok := ParseName(file)
	if !ok || n.Node != me.Node || n == me {
		return
	}
	path := filepath.Join(dir, file)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return
	}
	if n.dead(me, proc, now.Sub(info.ModTime())) {
		_ = os.Remove(path)
	}
}

// dead says that the run of a file which was written so long ago has ended.
func (n Name) dead(me Name, proc string, age time.Duration) bool {
	if n.Boot != me.Boot || n.Space != me.Space {
		return age >= silent
	}
	start, err := proctree.StartTime(proc, n.PID)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return n.Start != 0 && start != n.Start
}
