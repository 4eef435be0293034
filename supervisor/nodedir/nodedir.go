// Package nodedir makes and checks directories on node-local storage that only
// this user can enter. What lies in them is read and executed as the user's
// own, so nobody else may be able to put something there, and it is looked at
// often, so it may not lie on a file server.
package nodedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Make makes a directory that only this user can enter, or checks that it is
// one.
func Make(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return os.Chmod(dir, 0o700)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckOwn(dir)
}

// CheckOwn says whether dir is a directory, no link, of this user, that nobody
// else can enter.
func CheckOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to somebody else", dir)
	case info.Mode().Perm() != 0o700:
		return fmt.Errorf("%s has mode %04o, not 0700", dir, info.Mode().Perm())
	}
	return nil
}

// CheckParents says whether nobody but root and this user can rename or
// replace what lies in dir or above it.
func CheckParents(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for d := real; ; d = filepath.Dir(d) {
		info, err := os.Lstat(d)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !info.IsDir():
			return fmt.Errorf("%s is no directory", d)
		case !ok || !Trusted(st.Uid):
			return fmt.Errorf("%s belongs to somebody else", d)
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s can be written by others (mode %04o, not sticky)", d, info.Mode().Perm())
		}
		if d == "/" || d == "." {
			return nil
		}
	}
}

// Trusted says whether uid is root, this user, or what root of the host looks
// like from inside a user namespace.
func Trusted(uid uint32) bool {
	const overflow = 65534
	return uid == 0 || int(uid) == os.Geteuid() || (uid == overflow && InUserNamespace())
}

// InUserNamespace says that user IDs here are not the host's: root is not root there.
func InUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295"
}

// remote lists file systems that other nodes share, by statfs(2)'s f_type: a
// file there may be seen late, and every look costs a message.
var remote = map[uint32]string{
	0x6969: "nfs", 0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb",
	0x19830326: "beegfs", 0x00c36400: "ceph", 0x5346414f: "afs", 0xaad7aaea: "panfs", 0x7461636f: "ocfs2",
	0x01161970: "gfs2", 0x20030528: "orangefs", 0x65735546: "fuse", 0x013111a8: "ibrix", 0x61756673: "aufs",
}

// CheckLocal says whether a directory lies on storage of this node.
func CheckLocal(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cannot statfs %s: %w", dir, err)
	}
	if name, ok := remote[uint32(st.Type)]; ok {
		return fmt.Errorf("%s is not node-local: %s", dir, name)
	}
	return nil
}
