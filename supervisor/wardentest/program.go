package wardentest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// The programs that [Program] builds. They lie in one directory, which a PATH may name.
const (
	Rsswarden = "rsswarden"
	Faults    = "rsswarden-faults" // with the faults of package fault in it
	Site      = "rsswarden-site"   // takes etc/rsswarden.toml and var/torch of its working directory for the site's
	Static    = "rsswarden-static" // for a guest
	Daemon    = "rsswardend"
	LMDBLoad  = "lmdbload"
	Standin   = "standin"
)

// Root's verdicts on a torch are for all users of this machine: none of a test are.
const noVerdicts = "-X github.com/rsswarden/rsswarden/supervisor/loader.SiteVerdicts="

// The tag that `make build` has, too.
const tags = "-tags=urfave_cli_no_docs"

var builds = map[string][]string{
	Rsswarden: {tags, "-ldflags=" + noVerdicts, "./cmd/rsswarden"},
	Faults:    {tags + ",rsswarden_faults", "-ldflags=" + noVerdicts, "./cmd/rsswarden"},
	Site:      {tags, "-ldflags=" + noVerdicts + "var/torch -X main.siteFile=etc/rsswarden.toml -extldflags=-Wl,--defsym=hold_other_site=1", "./cmd/rsswarden"},
	Static:    {tags + ",netgo,osusergo", "-ldflags=-s -w -linkmode=external -extldflags=-static", "./cmd/rsswarden"},
	Daemon:    {tags, "./cmd/rsswardend"},
	LMDBLoad:  {"./examples/lmdbload"},
	Standin:   {"./examples/standin"},
}

// Programs names the directory of programs that .ci/test has built. Without it each test
// process asks `go build` for what it uses.
const Programs = "WARDENTEST_PROGRAMS"

// Program returns the path of a program of this module, which every user may run.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := Find(name)
	if err != nil && name == Static {
		t.Skip(err) // there may be no static C library
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// Find is [Program] for callers without a test, such as a TestMain.
func Find(name string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := directory(root)
	if err != nil {
		return "", fmt.Errorf("cannot make a directory for programs: %w", err)
	}
	path := filepath.Join(dir, name)
	if os.Getenv(Programs) == "" {
		err = build(root, dir, name)
	} else {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", err
	}
	built.paths[name] = path
	return path, nil
}

// directory is where the programs of a checkout are, by hand one of this user's below the
// directory for temporary files: other users may run what is in it.
func directory(root string) (string, error) {
	if dir := os.Getenv(Programs); dir != "" {
		return dir, nil
	}
	sum := fnv.New64a()
	sum.Write([]byte(root))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("rsswarden-programs-%d-%x", os.Geteuid(), sum.Sum64()))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s is not a directory of this user alone", dir)
	}
	return dir, os.Chmod(dir, 0o755)
}

// BuildAll builds every program in a directory, and says what could not be.
func BuildAll(dir string) (failed error) {
	root, err := Root()
	if err != nil {
		return err
	}
	for name := range builds {
		if err := build(root, dir, name); err != nil && name != Static {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// build has `go build` see to it that a program is up to date. A lock keeps test
// processes from building the same at once.
func build(root, dir, name string) error {
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cannot lock %s: %w", lock.Name(), err)
	}
	flags := builds[name]
	if flags == nil {
		return fmt.Errorf("unknown program %q", name)
	}
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", filepath.Join(dir, name)}, flags)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
	}
	return nil
}
