//go:build endurance

package packages_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

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

// firstMinutes is what the README says to somebody whose job died last night.
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
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", newcomer, "sh", root, src, strings.TrimSpace(string(compiler)))
	cmd.Stdin = strings.NewReader(firstMinutes)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"\ntrained\n", "1.00 GiB may be used", "verdict: fine", "Same data in the same order"} {
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
