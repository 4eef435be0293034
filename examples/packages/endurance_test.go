//go:build endurance

package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnduranceRelease builds all from nothing twice: no object is shared, modules lie
// elsewhere. What is for arm64 is run by QEMU, where that is there.
func TestEnduranceRelease(t *testing.T) {
	var sources, sums []string
	for _, name := range []string{"one", "another/place"} { // at once: somebody may be writing
		source, err := copied(name)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source)
	}
	for _, source := range sources {
		env := []string{"GOCACHE=" + source + ".cache"}
		if len(sums) > 0 {
			modules := filepath.Join(scratch, "modules")
			out, err := exec.Command("go", "env", "GOMODCACHE").Output()
			if err != nil {
				t.Fatal(err)
			}
			if err := exec.Command("cp", "-r", strings.TrimSpace(string(out)), modules).Run(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { exec.Command("chmod", "-R", "u+w", modules).Run() })
			env = append(env, "GOMODCACHE="+modules, "UMASK=077", "TZ=Asia/Tokyo")
		}
		out, err := release(source, env, "amd64", "arm64")
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(b))
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 4 {
		t.Errorf("one\n%sanother\n%s", sums[0], sums[1])
	}
	t.Log(sums[0])

	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Log("what is for arm64 is built, not run:", err)
		return
	}
	dir := t.TempDir()
	archive := filepath.Join(scratch, "one/dist/rsswarden-"+version+"-linux-arm64.tar.gz")
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"rsswarden", "rsswardend"} {
		out, err := exec.Command(qemu, filepath.Join(dir, "bin", name), "--version").Output()
		if err != nil || string(out) != name+" "+version+"\n" {
			t.Errorf("%s --version: %v, %q", name, err, out)
		}
	}
}

// TestEnduranceOlderDebian uses the package on Debian 11, with a C library older than
// that of who built it.
func TestEnduranceOlderDebian(t *testing.T) { useInRoot(t, newRoot(t, "bullseye")) }

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
