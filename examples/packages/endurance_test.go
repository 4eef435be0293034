//go:build endurance

package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnduranceRelease builds all from nothing twice: another place, another user's habits,
// another hour; no object is shared, modules lie elsewhere. What is for arm64 is run by QEMU,
// where that is there.
func TestEnduranceRelease(t *testing.T) {
	var sources, sums []string
	for _, name := range []string{"one", "another/place"} { // at once: the sources may be changing
		source, err := copied(name)
		wardentest.NoError(t, err)
		sources = append(sources, source)
	}
	for _, source := range sources {
		env := []string{"GOCACHE=" + source + ".cache"}
		if len(sums) > 0 {
			modules := filepath.Join(scratch, "modules")
			out, err := exec.Command("go", "env", "GOMODCACHE").Output()
			wardentest.NoError(t, err)
			wardentest.NoError(t, exec.Command("cp", "-r", strings.TrimSpace(string(out)), modules).Run())
			t.Cleanup(func() { exec.Command("chmod", "-R", "u+w", modules).Run() })
			env = append(env, "GOMODCACHE="+modules, "UMASK=077", "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir(),
				"CGO_CFLAGS=-g", "GOFLAGS=-buildvcs=true", "GOAMD64=v3", "HOME="+os.Getenv("HOME"))
		}
		out, err := release(source, env, "amd64", "arm64")
		wardentest.NoError(t, err)
		sums = append(sums, string(wardentest.ReadFile(t, filepath.Join(out, "SHA256SUMS"))))
		check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = out
		if text, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 2*4+2 {
		t.Errorf("one\n%sanother\n%s", sums[0], sums[1])
	}
	t.Log(sums[0])

	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Log("what is for arm64 is built, not run:", err)
		return
	}
	dir := unpack(t, filepath.Join(scratch, "one/dist/rsswarden-"+version+"-linux-arm64.tar.gz"))
	for _, name := range []string{"rsswarden", "rsswardend"} {
		out, err := exec.Command(qemu, filepath.Join(dir, "bin", name), "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), name+" "+version+"\n") {
			t.Errorf("%s --version: %v, %q", name, err, out)
		}
	}
}

// TestEnduranceOlderDebian uses the package on Debian 11, with a C library older than
// that of who built it.
func TestEnduranceOlderDebian(t *testing.T) { useInRoot(t, newRoot(t, "bullseye"), debFile, byDpkg) }

// newRoot builds a root of a release from the mirror of this machine's apt. It skips
// where that has none.
func newRoot(t *testing.T, suite string, packages ...string) (root string) {
	t.Helper()
	mirror := exec.Command("../../.ci/mirror")
	var why strings.Builder
	mirror.Stderr = &why
	site, err := mirror.Output()
	if err != nil {
		t.Skipf("no Debian %s: %s", suite, why.String())
	}
	root = filepath.Join(scratch, suite)
	args := []string{"--variant=minbase", suite, root, strings.TrimSpace(string(site))}
	if len(packages) > 0 {
		args = append([]string{"--include=" + strings.Join(packages, ",")}, args...)
	}
	if out, err := exec.Command("debootstrap", args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "Failed getting release file") {
			t.Skipf("%s has no Debian %s", site, suite)
		}
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

// newcomer runs what is on standard input in the root $1, with the Go of $3 and the source
// of $2 there. How names are resolved and which certificates are trusted is the site's.
const newcomer = `set -e
root=$1; src=$2; go=$3
mount --bind "$root" "$root"
mkdir -p "$root/usr/local/go" "$root/src"
mount --bind "$go" "$root/usr/local/go"; mount --bind "$src" "$root/src"
mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"
cat /etc/resolv.conf >"$root/etc/resolv.conf"; cat /etc/hosts >"$root/etc/hosts"
mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
exec env -i HOME=/root TERM=dumb GOPROXY="$(go env GOPROXY)" PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" bash -es
`

// firstMinutes is what the README tells a user whose job died last night.
const firstMinutes = `cd /src
took() { echo "$1: $((SECONDS - since)) s"; since=$SECONDS; }
since=$SECONDS
make install PREFIX=$HOME/.local >/tmp/install.log 2>&1 || { cat /tmp/install.log; exit 1; }
took 'make install, modules and compiler to be fetched'
export PATH=$HOME/.local/bin:$PATH
rsswarden run --limit 1G -- python3 -c 'b = bytearray(300 << 20)
for i in range(0, len(b), 4096): b[i] = 1
import time; time.sleep(2); print("trained")'
took 'the first job under it'
make demo >/tmp/demo.log 2>&1 || { cat /tmp/demo.log; exit 1; }
grep '^Same data in the same order' /tmp/demo.log
took 'make demo'
`

// TestEnduranceFirstMinutes: where there is Debian 12, Go, git, make and Python, and nothing
// else, the README's first commands do what it says. How long they take is written down.
func TestEnduranceFirstMinutes(t *testing.T) {
	root := newRoot(t, "bookworm", "ca-certificates", "git", "make", "python3")
	src, err := copied("newcomer")
	wardentest.NoError(t, err)
	compiler, err := exec.Command("go", "env", "GOROOT").Output()
	wardentest.NoError(t, err)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", newcomer, "sh", root, src, strings.TrimSpace(string(compiler)))
	cmd.Stdin = strings.NewReader(firstMinutes)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"\ntrained\n", "finished, memory fine", "Same data in the same order"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nothing like %q was said", want)
		}
	}
	if load, lerr := os.ReadFile("/proc/loadavg"); lerr == nil {
		t.Logf("load afterwards: %s", load)
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s", out)
}
