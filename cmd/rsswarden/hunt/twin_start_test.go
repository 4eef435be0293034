package hunt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTwinStartTooLong: our variables make the environment too long for execve(2). The
// command has the user's, and that the hook is left out is said and recorded.
func TestTwinStartTooLong(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	home := filepath.Join(dir, strings.Repeat("long", 50))
	must(t, os.Mkdir(home, 0o700))
	held := func(env ...string) *exec.Cmd {
		cmd := exec.Command(binary, "run", "--", "/bin/sh", "-c", "echo ${#PYTHONPATH}; exit 4")
		cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + home, "RSSWARDEN_RECORD=none", "RSSWARDEN_EVENTS=" + events}, env...)
		return cmd
	}
	// One string may have 128 KiB (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
	longest := "PYTHONPATH=/" + strings.Repeat("p", 128<<10-len("PYTHONPATH=/")-1)
	// All together may have a quarter of the stack: the most that still starts us.
	most, filler := 0, strings.Repeat("x", 100<<10)
	full := func(n int) (env []string) {
		for n > 0 {
			some := min(n, len(filler))
			env = append(env, fmt.Sprintf("F%03d=%s", len(env), filler[:some]))
			n -= some
		}
		return env
	}
	for step := 8 << 20; step > 0; step /= 2 {
		cmd := held(full(most + step)...)
		if err := cmd.Start(); errors.Is(err, syscall.E2BIG) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		cmd.Process.Kill()
		cmd.Wait()
		most += step
	}
	for name, env := range map[string][]string{"one string": {longest}, "all together": full(most), "all but 100 bytes": full(most - 100)} {
		os.Remove(events)
		r := finishWithin(t, 20*time.Second, held(env...))
		if want := strconv.Itoa(len(env[0]) - len("PYTHONPATH=")); r.status != 4 || name == "one string" && strings.TrimSpace(r.stdout) != want {
			t.Errorf("%s: status %d, want 4; PYTHONPATH of %q bytes\n%s", name, r.status, r.stdout, r.stderr)
		}
		const says = "no room for our variables"
		b, err := os.ReadFile(events)
		if err != nil || !strings.Contains(string(b), says) || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %v, not said: %q\n%s\n%s", name, err, says, r.stderr, b)
		}
	}
}

// TestTwinStartPythonPathTwice: C takes the first of two, a shell the last; the hook is in both.
func TestTwinStartPythonPathTwice(t *testing.T) {
	r := finish(t, role("environ", "PYTHONPATH=/first", "PYTHONPATH=/second", "HOME="+t.TempDir(), "--", binary, "run", "--quiet", "--", "/bin/cat", "/proc/self/environ"))
	if n := len(regexp.MustCompile(`PYTHONPATH=/[^:]*/hook-[^:]*:/(first|second)\x00`).FindAllString(r.stdout, -1)); n != 2 {
		t.Errorf("the hook is in %d of 2\n%q %s", n, r.stdout, r.stderr)
	}
}

// TestTwinStartUmask: no directory is made that its owner cannot enter.
func TestTwinStartUmask(t *testing.T) {
	needRoot(t)
	for _, umask := range []string{"777", "700", "277"} {
		home := owned(t, filepath.Join(shared(t, 0o755), "home"), victim, 0o700)
		cmd := as(victim, exec.Command("sh", "-c", "umask "+umask+`; exec "$@"`, "sh", binary, "run", "--limit", "50M", "--at", "user 1%:warn", "--interval", "50ms", "--", "sleep", "0.5"))
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home}
		if r := finish(t, cmd); r.status != 0 {
			t.Errorf("%d %s", r.status, r.stderr)
		}
		made := 0
		must(t, filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			if err != nil || path == home {
				return err
			}
			made++
			info, err := d.Info()
			if err == nil && d.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
				t.Errorf("umask %s: %s has mode %v", umask, path, info.Mode())
			}
			return err
		}))
		if made == 0 {
			t.Error("nothing was made in the home directory")
		}
	}
}
