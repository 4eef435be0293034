// Package debian13 runs programs of Debian 13 on this machine, for tests: its
// PyTorch 2.6 on Python 3.13, its Slurm 24.11.
//
//	func TestTorch26(t *testing.T) {
//		cmd := debian13.Need(t).Command("python3", script)
//		out, err := cmd.CombinedOutput()
//		…
//	}
//
// The programs come from a root that .ci/debian13 builds from the list in the
// file packages, and keeps in the user's cache. A command sees this machine
// with /usr and /etc replaced by those of the root, both read-only. All else is
// the same at the same path: /proc, /sys, /dev, /dev/shm, the temporary
// directory, the source tree, test binaries, sockets; so are PID, network and
// cgroups. What lies below this machine's /usr or /etc cannot be reached, its
// compilers included.
//
// What Debian 13 does not have, Apptainer and Accelerate, comes from Debian sid by
// .ci/sid, in a folder of its own: [NeedSid] is the root with that over it.
//
// The replacement is done by mounts in a mount namespace of the command's own,
// which ends with it: nothing is to be cleaned up, nothing can be seen from
// outside but through /proc/PID/root.
package debian13

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// packages is what .ci/debian13 installs: one name a line. Its hash names the
// root, there too.
//
//go:embed packages
var packages []byte

// ofSid is what .ci/sid gets: one name a line. Its hash and that of packages name the
// folder, there too.
//
//go:embed sid
var ofSid []byte

// Root is a Debian 13 root that can be used.
type Root struct {
	dir string
	sid string // what lies over it; empty for nothing
}

// Need returns the root, or skips the test with the reason.
func Need(tb testing.TB) *Root {
	tb.Helper()
	r, err := Find()
	if err != nil {
		tb.Skip(err)
	}
	return r
}

// NeedSid returns the root with what .ci/sid got over /usr, /etc and /var/lib, or skips the
// test with the reason. Its commands see the bare root at /mnt, for an image of a container
// that any user can reach.
func NeedSid(tb testing.TB) *Root {
	tb.Helper()
	r, err := findSid()
	if err != nil {
		tb.Skip(err)
	}
	return r
}

// Find returns the root, or why it cannot be used here.
var Find = sync.OnceValues(find)

var findSid = sync.OnceValues(func() (*Root, error) {
	bare, err := Find()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no packages of Debian sid: %w", err)
	}
	hash := sha256.Sum256(append(bytes.Clone(packages), ofSid...))
	r := &Root{bare.dir, filepath.Join(cache, "rsswarden-test", "sid-"+fmt.Sprintf("%x", hash)[:12])}
	if _, err := os.Stat(r.sid); err != nil {
		return nil, fmt.Errorf("no packages of Debian sid, .ci/sid gets them: %w", err)
	}
	if out, err := r.Command("true").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot run a command in the Debian 13 root with packages of sid: %w: %s", err, out)
	}
	return r, nil
})

func find() (*Root, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a Debian 13 root needs root")
	}
	dir, err := path()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no Debian 13 root, .ci/debian13 builds one: %w", err)
	}
	for _, name := range []string{"bin", "sbin", "lib"} {
		if to, err := os.Readlink("/" + name); err != nil || strings.TrimPrefix(to, "/") != "usr/"+name {
			return nil, fmt.Errorf("a Debian 13 root needs /%s to be a link to usr/%[1]s", name)
		}
	}
	r := &Root{dir: dir}
	if out, err := r.Command("true").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot run a command in the Debian 13 root: %w: %s", err, out)
	}
	return r, nil
}

func path() (string, error) {
	if dir := os.Getenv("RSSWARDEN_DEBIAN13"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME, else $HOME/.cache
	if err != nil {
		return "", fmt.Errorf("no Debian 13 root: %w", err)
	}
	return filepath.Join(cache, "rsswarden-test", "debian13-"+fmt.Sprintf("%x", sha256.Sum256(packages))[:12]), nil
}

// enter is given the root, what lies over it, then the command. A bind mount of a
// read-only mount is read-only, as is an overlay without an upper directory. /usr goes
// last: from then on mount is that of the root.
const enter = `
fail() { echo "cannot enter the Debian 13 root: $1" >&2; exit 125; }
root=$1 sid=$2; shift 2
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" || fail "$root"
if [ -z "$sid" ]; then
	mount --bind "$root/etc" /etc || fail /etc
	mount --bind "$root/usr" /usr || fail /usr
else
	mount --bind "$root" /mnt || fail /mnt
	mount -t overlay -o "lowerdir=$sid/var/lib:/var/lib" overlay /var/lib || fail /var/lib
	mount -t overlay -o "lowerdir=$sid/etc:$root/etc" overlay /etc || fail /etc
	mount -t overlay -o "lowerdir=$sid/usr:$root/usr" overlay /usr || fail /usr
fi
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec "$@"
`

// Command is a command of the root, not yet started. The working folder and the
// environment are the caller's but for PATH, which names the root's programs
// alone; a name without a slash is looked for there. The process that is started becomes the command by
// exec: its PID is the command's, and it is reached by the caller's signals
// once it got there, some 10 ms later. It runs as root, who alone may mount: for
// another user give it setpriv, which is in the root too, not a Credential in
// SysProcAttr.
func (r *Root) Command(name string, args ...string) *exec.Cmd {
	argv := r.Argv(name, args...)
	return exec.Command(argv[0], argv[1:]...)
}

// Argv is the argument list of [Root.Command], for those who start it in
// another way.
func (r *Root) Argv(name string, args ...string) []string {
	return append([]string{"unshare", "--mount", "--propagation", "private", "--",
		"/bin/sh", "-c", enter, "debian13", r.dir, r.sid, name}, args...)
}

// Path is where a file of the root, "/usr/bin/python3", lies on this machine.
func (r *Root) Path(name string) string { return filepath.Join(r.dir, name) }
