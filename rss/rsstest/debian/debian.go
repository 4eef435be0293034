// Package debian runs programs of newer releases of Debian on this machine, for tests:
// PyTorch 2.6 on Python 3.13 and Slurm 24.11 of Debian 13, and what Debian sid has now,
// which was PyTorch 2.14.1 on Python 3.14 and Slurm 26.05.5.
//
//	func TestTorch26(t *testing.T) {
//		cmd := debian.Need(t, debian.Trixie).Command("python3", script)
//		out, err := cmd.CombinedOutput()
//		…
//	}
//
// The programs come from a root that .ci/root builds from the list in the file named
// after the suite, and keeps in the user's cache. A command sees this machine
// with /usr and /etc replaced by those of the root, both read-only. All else is
// the same at the same path: /proc, /sys, /dev, /dev/shm, the temporary
// directory, the source tree, test binaries, sockets; so are PID, network and
// cgroups. What lies below this machine's /usr or /etc cannot be reached, its
// compilers included.
//
// The replacement is done by mounts in a mount namespace of the command's own,
// which ends with it: nothing is to be cleaned up, nothing can be seen from
// outside but through /proc/PID/root.
package debian

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Suite is a release of Debian, by the name that archives know.
type Suite string

// The suites that there are roots of.
const (
	Trixie Suite = "trixie" // Debian 13
	Sid    Suite = "sid"    // changes every day: a test takes no version for granted
)

// lists holds what .ci/root installs in each root: one package a line. The hash of a list
// is in the root's name, there too.
//
//go:embed trixie sid
var lists embed.FS

// Root is the root of a suite.
type Root struct{ dir string }

// Need returns the root of a suite, or skips the test with the reason.
func Need(tb testing.TB, suite Suite) *Root {
	tb.Helper()
	r, err := Find(suite)
	if err != nil {
		tb.Skip(err)
	}
	return r
}

var found sync.Map // func() (*Root, error) by Suite

// Find returns the root of a suite, or why it cannot be used here.
func Find(suite Suite) (*Root, error) {
	once, _ := found.LoadOrStore(suite, sync.OnceValues(func() (*Root, error) { return find(suite) }))
	return once.(func() (*Root, error))()
}

func find(suite Suite) (*Root, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("a root of Debian %s needs root", suite)
	}
	dir, err := path(suite)
	if err != nil {
		return nil, fmt.Errorf("no root of Debian %s: %w", suite, err)
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no root of Debian %s, .ci/root builds one: %w", suite, err)
	}
	for _, name := range []string{"bin", "sbin", "lib"} {
		if to, err := os.Readlink("/" + name); err != nil || strings.TrimPrefix(to, "/") != "usr/"+name {
			return nil, fmt.Errorf("a root of Debian %s needs /%s to be a link to usr/%[2]s", suite, name)
		}
	}
	r := &Root{dir}
	if out, err := r.Command("true").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot run a command in the root of Debian %s: %w: %s", suite, err, out)
	}
	return r, nil
}

func path(suite Suite) (string, error) {
	if dir := os.Getenv("RSSWARDEN_" + strings.ToUpper(string(suite))); dir != "" {
		return dir, nil
	}
	list, err := lists.ReadFile(string(suite))
	cache, noCache := os.UserCacheDir() // $XDG_CACHE_HOME, else $HOME/.cache
	if err := errors.Join(err, noCache); err != nil {
		return "", err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(list))
	return filepath.Join(cache, "rsswarden-test", string(suite)+"-"+hash[:12]), nil
}

// enter takes the root, then the command. A bind mount of a read-only mount is read-only.
// /usr goes last: from then on mount is that of the root.
const enter = `
fail() { echo "cannot enter the root $root: $1" >&2; exit 125; }
root=$1; shift
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" || fail "$root"
mount --bind "$root/etc" /etc || fail /etc
mount --bind "$root/usr" /usr || fail /usr
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
		"/bin/sh", "-c", enter, "debian", r.dir, name}, args...)
}

// Path is where a file of the root, "/usr/bin/python3", lies on this machine.
func (r *Root) Path(name string) string { return filepath.Join(r.dir, name) }
