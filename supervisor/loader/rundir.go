package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// identity says who made a run directory and where it is good. The file holds
// a "KEY VALUE" a line: the hook reads it at the start of a Python, where
// importing a JSON parser would be felt.
type identity struct {
	Owner  rss.ProcID
	BootID string // /proc/sys/kernel/random/boot_id
	PIDNS  string // link of /proc/self/ns/pid
}

const identityFile = "identity"

func self() (identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, err
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return identity{}, err
	}
	start, err := startTime("/proc", os.Getpid())
	if err != nil {
		return identity{}, err
	}
	return identity{rss.ProcID{PID: os.Getpid(), Start: start}, strings.TrimSpace(string(boot)), ns}, nil
}

func (i identity) format() []byte {
	return fmt.Appendf(nil, "version 1\npid %d\nstart %d\nboot_id %s\npid_ns %s\n", i.Owner.PID, i.Owner.Start, i.BootID, i.PIDNS)
}

func parseIdentity(data []byte) (identity, error) {
	var i identity
	version := ""
	for l := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		var err error
		switch key {
		case "version":
			version = value
		case "pid":
			i.Owner.PID, err = strconv.Atoi(value)
		case "start":
			i.Owner.Start, err = strconv.ParseUint(value, 10, 64)
		case "boot_id":
			i.BootID = value
		case "pid_ns":
			i.PIDNS = value
		}
		if err != nil {
			return i, fmt.Errorf("%w: identity: %s %q", errMalformed, key, value)
		}
	}
	if version != "1" || i.Owner.PID <= 0 || i.Owner.Start == 0 || i.BootID == "" || i.PIDNS == "" {
		return i, fmt.Errorf("%w: identity of %d bytes", errMalformed, len(data))
	}
	return i, nil
}

// makeRunDir makes the run directory under the first parent that is fit.
func makeRunDir(parents []string, name string, me identity) (dir string, swept int, err error) {
	var errs []error
	for _, parent := range parents {
		dir, swept, err := makeRunDirIn(parent, name, me)
		if err == nil {
			return dir, swept, nil
		}
		errs = append(errs, err)
	}
	return "", 0, errors.Join(errs...)
}

func makeRunDirIn(parent, name string, me identity) (dir string, swept int, err error) {
	if err := checkParents(parent); err != nil {
		return "", 0, err
	}
	if err := checkLocal(parent); err != nil {
		return "", 0, err
	}
	all := filepath.Join(parent, "rsswarden-"+strconv.Itoa(os.Geteuid()))
	if err := mkdirOwn(all); err != nil {
		return "", 0, err
	}
	swept = sweep(all, me)
	base := cleanName(name)
	if base == "" {
		base = fmt.Sprintf("run.%d.%d", me.Owner.PID, me.Owner.Start)
	}
	dir, err = takeDir(all, base)
	if err != nil {
		return "", swept, err
	}
	// The umask may have taken bits away.
	err = os.Chmod(dir, 0o700)
	if err == nil {
		err = replaceFile(filepath.Join(dir, identityFile), me.format())
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", swept, err
	}
	return dir, swept, nil
}

// takeDir makes a directory under all that is named base, with a number behind
// it where a run of the same task lives: one started by the other, or beside it.
func takeDir(all, base string) (string, error) {
	n := 0
	for range 1000 {
		dir := filepath.Join(all, base)
		if n > 0 {
			dir += "-" + strconv.Itoa(n)
		}
		err := os.Mkdir(dir, 0o700)
		switch {
		case err == nil:
			return dir, nil
		case errors.Is(err, fs.ErrExist):
			n++
		case errors.Is(err, fs.ErrNotExist):
			// A run that ended was the last, and has removed all of it just now.
			if err := mkdirOwn(all); err != nil {
				return "", err
			}
		default:
			return "", err
		}
	}
	return "", fmt.Errorf("no name is free for %s", filepath.Join(all, base))
}

// sweep removes the run directories under all whose owner has ended. Those of
// another PID namespace are left alone: whether their owner lives cannot be
// seen from here.
func sweep(all string, me identity) (swept int) {
	names, err := readDirNames(all, 4096)
	if err != nil {
		return 0
	}
	for _, name := range names {
		dir := filepath.Join(all, name)
		if checkOwn(dir) != nil {
			continue
		}
		data, _, err := readSmall(filepath.Join(dir, identityFile))
		if err != nil {
			continue
		}
		i, err := parseIdentity(data)
		if err != nil || (i.BootID == me.BootID && i.PIDNS != me.PIDNS) {
			continue
		}
		if i.BootID == me.BootID {
			start, err := startTime("/proc", i.Owner.PID)
			ended := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
			if !ended && (err != nil || start == i.Owner.Start) {
				continue
			}
		}
		if os.RemoveAll(dir) == nil {
			swept++
		}
	}
	return swept
}

// cleanName makes name one element of a path.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '_', r == '-', r == '+':
			return r
		}
		return '_'
	}, name)
	if len(name) > 128 {
		name = name[:128]
	}
	return strings.TrimLeft(name, ".")
}

// mkdirOwn makes a directory that only this user can enter, or checks that it
// is one.
func mkdirOwn(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return os.Chmod(dir, 0o700)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkOwn(dir)
}

// checkOwn says whether dir is a directory, no link, of this user, that nobody
// else can enter.
func checkOwn(dir string) error {
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

// checkParents says whether nobody but root and this user can rename or
// replace what lies in dir or above it.
func checkParents(dir string) error {
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
		case !ok || !trusted(st.Uid):
			return fmt.Errorf("%s belongs to somebody else", d)
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s can be written by others (mode %04o, not sticky)", d, info.Mode().Perm())
		}
		if d == "/" || d == "." {
			return nil
		}
	}
}

// trusted says whether uid is root, this user, or what root of the host looks
// like from inside a user namespace.
func trusted(uid uint32) bool {
	const overflow = 65534
	return uid == 0 || int(uid) == os.Geteuid() || (uid == overflow && inUserNamespace())
}

func inUserNamespace() bool {
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

func checkLocal(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cannot statfs %s: %w", dir, err)
	}
	if name, ok := remote[uint32(st.Type)]; ok {
		return fmt.Errorf("%s is not node-local: %s", dir, name)
	}
	return nil
}
