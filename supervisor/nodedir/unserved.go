package nodedir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// own are the file systems that need nobody's answer but this node's.
var own = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "devtmpfs", "proc", "sysfs", "cgroup", "cgroup2"}

// mostLinks bounds the links on the way to a directory, as the kernel does.
const mostLinks = 40

// Unserved says that no file server, and no file system in user space, has a say on the
// way to a path: looking at it does not hang for want of one. mountinfo is what
// /proc/self/mountinfo holds. What it says no is not touched, and the root file system is
// not asked about, since this program and its libraries lie there.
func Unserved(mountinfo []byte, path string) bool {
	var others []string // where something else is mounted
	for line := range strings.Lines(string(mountinfo)) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+2 {
			return false
		}
		if f[4] != "/" && !slices.Contains(own, f[dash+1]) {
			others = append(others, unescape.Replace(f[4]))
		}
	}
	if len(mountinfo) == 0 || !filepath.IsAbs(path) {
		return false
	}
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name) // ".." leads up from where a link has led
		if slices.Contains(others, next) {
			return false
		}
		to, err := os.Readlink(next)
		if err != nil {
			at = next // no link, or not there
			continue
		}
		if links++; links > mostLinks {
			return false
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return true
}

// unescape undoes what the kernel writes for what separates fields and lines.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
