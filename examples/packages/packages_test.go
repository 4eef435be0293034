// Package packages_test builds what is given away, and uses it where it will be used:
// on a Debian that has nothing of ours, on an old kernel, by a module.
package packages_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const version = "1.2.3"

// scratch is removed at the end.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "rsswarden-packages-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(scratch)
	os.Exit(status)
}

// copied makes a copy of the source in a directory of that name.
func copied(name string) (string, error) {
	dir := filepath.Join(scratch, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	script := `set -o pipefail; cd ../.. && git ls-files -zco --exclude-standard | xargs -0 sh -c 'for f; do [ ! -f "$f" ] || printf "%s\0" "$f"; done' sh |
		tar -c --null -T - | tar -x -C "$1"`
	if out, err := exec.Command("bash", "-c", script, "bash", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot copy the source: %w: %s", err, out)
	}
	return dir, nil
}

// release builds in a copy of the source and returns where the files are.
func release(source string, env []string, archs ...string) (string, error) {
	out := filepath.Join(source, "dist")
	cmd := exec.Command("bash", append([]string{"-c", `umask "${UMASK:-022}"; exec bash "$@"`, "bash", "examples/packages/release.sh", out, version}, archs...)...)
	cmd.Dir = source
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return out, nil
}

// built is a release of this source, made once.
var built = sync.OnceValues(func() (string, error) {
	source, err := copied("a")
	if err != nil {
		return "", err
	}
	return release(source, nil, "amd64")
})

func needBuilt(t *testing.T) string {
	t.Helper()
	out, err := built()
	wardentest.NoError(t, err)
	return out
}

// unpacked is where the archive was unpacked.
func unpacked(t *testing.T) string {
	t.Helper()
	return unpack(t, filepath.Join(needBuilt(t), "rsswarden-"+version+"-linux-amd64.tar.gz"))
}

func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"))
}

// TestReleaseNeedsNothing: no program asks for an interpreter or a library, and none
// contains the path where it was built.
func TestReleaseNeedsNothing(t *testing.T) {
	root := unpacked(t)
	for _, name := range []string{"rsswarden", "rsswardend"} {
		file := filepath.Join(root, "bin", name)
		f, err := elf.Open(file)
		wardentest.NoError(t, err)
		libs, err := f.ImportedLibraries()
		if err != nil || len(libs) > 0 {
			t.Errorf("%s needs %q, %v", name, libs, err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s has an interpreter", name)
			}
		}
		f.Close()
		if bytes.Contains(wardentest.ReadFile(t, file), []byte(scratch)) {
			t.Errorf("%s has the path it was built in", name)
		}
		out, err := exec.Command(file, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), name+" "+version+"\n") {
			t.Errorf("%s --version: %v, %q", name, err, out)
		}
	}
}

// TestLicences: the programs come with the terms of all that is linked.
func TestLicences(t *testing.T) {
	terms := string(wardentest.ReadFile(t, filepath.Join(unpacked(t), "share/doc/rsswarden/copyright")))
	out, err := exec.Command("go", "list", "-deps", "-tags", "urfave_cli_no_docs", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "../../cmd/rsswarden", "../../cmd/rsswardend").Output()
	wardentest.NoError(t, err)
	modules := strings.Fields(string(out))
	if len(modules) < 10 {
		t.Fatalf("only %q", modules)
	}
	for _, m := range append(modules, "rsswarden", "Go, its standard library", "The OpenLDAP Public License", "In rsswarden alone: the GNU C Library") {
		if !strings.Contains(terms, "\n"+m) && !strings.Contains(terms, m+"\n") {
			t.Errorf("no licence of %s", m)
		}
	}
}

// inCleanRoot is given the root, a directory for what is written, the package, and what to
// do with it. What the root holds is the same before and after, by type, mode and name.
const inCleanRoot = `
set -eu
lower=$1 root=$2/root package=$3 how=$4
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$root"
mount -t overlay -o "lowerdir=$lower,upperdir=$2/upper,workdir=$2/work" overlay "$root"
for dir in proc sys dev; do mount --rbind /$dir "$root/$dir"; done
mkdir "$root/given" && mount -t tmpfs tmpfs "$root/given"
cat >"$root/given/script"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/given TMPDIR=/given LC_ALL=C.UTF-8 XDG_STATE_HOME=/given "$@"; }
step() { inside bash -eu /given/script "$1"; }
quietly() { "$@" >"$root/given/log" 2>&1 || { cat "$root/given/log"; exit 1; }; }
eval "$how"
`

var link = regexp.MustCompile(`\]\(([^)#:]+)`)

// TestLinksInPackage: what the documents of a package tell to read or to copy is in it; what
// is read in the source is not.
func TestLinksInPackage(t *testing.T) {
	doc := filepath.Join(unpacked(t), "share/doc/rsswarden")
	documents, err := filepath.Glob(doc + "/docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal("no documents: ", err)
	}
	inSource := regexp.MustCompile(`\.go$|^(slurm|supervisor|examples/packages|examples/train)/|^(CONTRIBUTING|CHANGELOG)\.md$`)
	found := 0
	for _, name := range append(documents, doc+"/README.md") {
		for _, m := range link.FindAllStringSubmatch(string(wardentest.ReadFile(t, name)), -1) {
			to := filepath.Join(filepath.Dir(name), m[1])
			if rel, _ := filepath.Rel(doc, to); inSource.MatchString(rel) {
				continue
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
			found++
		}
	}
	if found < 50 {
		t.Errorf("only %d links were found", found)
	}
}

// useIt is run in the root, once for each step.
const useIt = `
# What dpkg keeps for itself is not the package's.
all() { find / -xdev -printf '%y %m %p\n' | grep -vE ' /(var/lib/dpkg/(status|status-old|lock|lock-frontend|diversions-old|statoverride-old|triggers/Lock)|var/log/dpkg.log|var/cache/ldconfig/aux-cache)$' | sort; }
wanted=/etc/systemd/system/multi-user.target.wants
before() { mkdir -p $wanted; all >/given/before; }
after() { all >/given/after; diff /given/before /given/after; }
used() {
[ "$(rsswarden --version | head -1)" = "rsswarden 1.2.3" ]
[ "$(rsswardend --version | head -1)" = "rsswardend 1.2.3" ]
[ "$(readlink /usr/bin/rsswarden-task)" = rsswarden ]
zcat /usr/share/man/man1/rsswarden.1.gz | cmp - <(rsswarden man)
zcat /usr/share/man/man8/rsswardend.8.gz | cmp - <(rsswardend man)
grep -q '^ExecStart=/usr/bin/rsswardend ' /usr/lib/systemd/system/rsswardend.service
if grep -n /usr/local /usr/lib/systemd/system/rsswardend.service; then exit 1; fi
cmp /usr/share/zsh/*/_rsswarden <(rsswarden completion zsh)
cmp /usr/share/fish/vendor_completions.d/rsswarden.fish <(rsswarden completion fish)
[ -s /usr/share/doc/rsswarden/copyright ]
source /usr/share/bash-completion/completions/rsswarden
compopt() { :; } # it is for readline alone
COMP_WORDS=(rsswarden run --accounting nos) COMP_CWORD=3 COMP_LINE='rsswarden run --accounting nos' COMP_POINT=30
_rsswarden
[ "${COMPREPLY[*]}" = noshared ]
status=0
rsswarden run --limit 200M --record /given/records -- sh -c 'echo trained; exit 7' >/given/out 2>/given/err || status=$?
[ "$status" = 7 ] && [ "$(cat /given/out)" = trained ] || { cat /given/err; exit 1; }
rsswarden report --no-slurm /given/records >/given/report
ln -s /usr/lib/systemd/system/rsswardend.service $wanted
}
"$1"
`

// useInRoot installs a package in a copy of a root, uses it and removes it.
func useInRoot(t *testing.T, root, file, how string) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--", "bash", "-c", inCleanRoot, "bash",
		root, t.TempDir(), filepath.Join(needBuilt(t), file), how)
	cmd.Stdin = strings.NewReader(useIt)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const byDpkg = `
step before
cp "$package" "$root/given/rsswarden.deb"
quietly inside dpkg -i /given/rsswarden.deb
if grep -i warning "$root/given/log"; then exit 1; fi
step used
inside sh -c 'cd / && md5sum --quiet -c /var/lib/dpkg/info/rsswarden.md5sums'
inside dpkg --verify rsswarden
inside sh -c 'mkdir -p /var/lib/rsswardend && touch /var/lib/rsswardend/oom.jsonl'
quietly inside dpkg -i /given/rsswarden.deb
[ -L "$root/etc/systemd/system/multi-user.target.wants/rsswardend.service" ]
quietly inside dpkg -r rsswarden
[ ! -e "$root/usr/bin/rsswarden" ] && [ -e "$root/var/lib/rsswardend/oom.jsonl" ]
quietly inside dpkg -P rsswarden
step after
`

const debFile = "rsswarden_" + version + "_amd64.deb"

// TestDebianPackage: it is installed, used and removed where nothing of ours was, and
// nothing of it stays.
func TestDebianPackage(t *testing.T) {
	useInRoot(t, debian.Need(t, debian.Trixie).Path("/"), debFile, byDpkg)
}

// rpm installs into the root from outside: that has no RPM.
const byRPM = `
rpm() { quietly command rpm --root "$root" --dbpath /given/db --nodeps "$@"; }
quietly command rpm -K "$package"
step before
rpm -i "$package"
step used
rpm -V rsswarden
rpm -U --replacepkgs "$package"
[ -L "$root/etc/systemd/system/multi-user.target.wants/rsswardend.service" ]
rpm -e rsswarden
step after
`

// TestRPM: it is installed, used, upgraded and removed by the RPM of this machine, and
// nothing of it stays.
func TestRPM(t *testing.T) {
	need(t, "rpm")
	useInRoot(t, debian.Need(t, debian.Trixie).Path("/"), "rsswarden-"+version+"-1.x86_64.rpm", byRPM)
}

// need skips where a program is missing.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(err)
	}
}

// TestOldKernel: the static program runs where there is no C library at all.
func TestOldKernel(t *testing.T) {
	const kernel = "5.10"
	out, exit := guest.Run(t, guest.Options{
		Kernel: kernel, Binary: filepath.Join(unpacked(t), "bin/rsswarden"),
		// The watcher has two seconds at the end, and may take longer to start in an emulated machine.
		Args: []string{"run", "--limit", "100M", "--", "/bin/sh", "-c", "uname -r; sleep 10; exit 7"},
	})
	if exit != 7 || !strings.Contains(out, kernel+".") || !strings.Contains(out, "command failed") {
		t.Errorf("status %d\n%s", exit, out)
	}
}

// TestModulefile: a module makes the commands and the manual pages be found, and takes
// them away again.
func TestModulefile(t *testing.T) {
	var modulecmd string
	for _, name := range []string{"/usr/lib/x86_64-linux-gnu/modulecmd.tcl", "/usr/share/modules/libexec/modulecmd.tcl"} {
		if _, err := os.Stat(name); err == nil {
			modulecmd = name
		}
	}
	if modulecmd == "" {
		t.Skip("no Environment Modules")
	}
	root, dir := unpacked(t), t.TempDir()
	text := regexp.MustCompile(`(?m)^set root .*`).ReplaceAllString(string(wardentest.ReadFile(t, "modulefile")), "set root "+root)
	wardentest.Write(t, filepath.Join(dir, "rsswarden", version), text)
	script := `module() { eval "$("$0" bash "$@")"; }
before=$(env | grep -E '^(PATH|MANPATH)=' | sort)
module load rsswarden
rsswarden --version | head -n 1; man -w rsswarden; man -w | tr : '\n' | grep -x /usr/share/man
module unload rsswarden
[ "$before" = "$(env | grep -E '^(PATH|MANPATH)=' | sort)" ] && echo gone
`
	cmd := exec.Command("bash", "-c", script, modulecmd)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "MODULEPATH=" + dir}
	out, err := cmd.CombinedOutput()
	if want := "rsswarden " + version + "\n" + root + "/share/man/man1/rsswarden.1.gz\n/usr/share/man\ngone\n"; err != nil || string(out) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
	}
}

// recipes has Python read the recipes as Spack and EasyBuild do, and print what they
// would have make do.
const recipes = `
import sys, types
class Base:
    version, prefix = "main", "/spack/prefix"
pkg = types.ModuleType("spack.package")
pkg.MakefilePackage = Base
for name in ("license", "version", "depends_on", "conflicts"):
    setattr(pkg, name, lambda *a, **k: None)
pkg.join_path = "/".join
sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), pkg
space = {}
exec(compile(open("spack/package.py").read(), "package.py", "exec"), space)
print(*space["Rsswarden"]().install_targets)
space = {"SYSTEM": {}}
exec(compile(open("easybuild/rsswarden-main-GCCcore.eb").read(), "rsswarden.eb", "exec"), space)
for name in ("easyblock", "name", "version", "homepage", "description", "toolchain", "sources", "moduleclass"):
    assert space[name], name
values = {"version": space["version"], "installdir": "/eb/prefix", "builddir": "/b", "name": space["name"]}
print("install", space["installopts"] % values)
print(*[f for f in space["sanity_check_paths"]["files"]])
`

// conda is the part of a recipe of conda that is looked at.
type conda struct {
	Package struct{ Name, Version string }
	Source  struct {
		GitURL string `yaml:"git_url"`
		GitRev string `yaml:"git_rev"`
	}
	Build struct{ Script []string }
	Test  struct{ Commands []string }
	About struct {
		Home, License string
		LicenseFile   string `yaml:"license_file"`
	}
}

// TestRecipes: they have make do what the Makefile can, and what they look for
// afterwards is there.
func TestRecipes(t *testing.T) {
	out, err := exec.Command(wardentest.Python, "-c", recipes).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	if len(lines) < 3 || lines[0] != "install VERSION=main PREFIX=/spack/prefix" || lines[1] != "install VERSION=main PREFIX=/eb/prefix" {
		t.Fatalf("%s", out)
	}
	var recipe conda
	text := regexp.MustCompile(`\{\{ compiler\('([a-z-]+)'\) \}\}`).ReplaceAllString(string(wardentest.ReadFile(t, "conda/meta.yaml")), "$1")
	wardentest.NoError(t, yaml.Unmarshal([]byte(text), &recipe))
	const home = "https://github.com/rsswarden/rsswarden"
	if r := recipe; r.Package.Name != "rsswarden" || r.Package.Version != "main" || r.Source.GitRev != "main" || r.Source.GitURL != home+".git" || r.About.Home != home || r.About.License != "Apache-2.0" || r.About.LicenseFile != "LICENSE" {
		t.Errorf("conda: %+v", r)
	}
	sh := exec.Command("sh", "-euc", `make() { echo "make $*"; }`+"\n"+strings.Join(recipe.Build.Script, "\n"))
	sh.Env = []string{"SRC_DIR=/conda/work", "PKG_VERSION=main", "PREFIX=/conda/prefix"}
	if out, err := sh.CombinedOutput(); err != nil || string(out) != "make install VERSION=main PREFIX=/conda/prefix\n" {
		t.Errorf("conda: %v: %s", err, out)
	}
	dir := t.TempDir()
	cmd := exec.Command("make", "install", "VERSION=main", "PREFIX="+dir)
	source, err := copied("recipe")
	wardentest.NoError(t, err)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range strings.Fields(lines[2]) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	sh = exec.Command("sh", "-euc", strings.Join(recipe.Test.Commands, "\n"))
	sh.Env = []string{"PREFIX=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "XDG_STATE_HOME=" + t.TempDir()}
	if out, err := sh.CombinedOutput(); err != nil || len(recipe.Test.Commands) == 0 {
		t.Errorf("conda: %v: %s", err, out)
	}
	if out, _, err := wardentest.Output(filepath.Join(dir, "bin", "rsswarden"), "--version"); err != nil || !strings.HasPrefix(out, "rsswarden main") {
		t.Errorf("%q, %v", out, err)
	}
}
