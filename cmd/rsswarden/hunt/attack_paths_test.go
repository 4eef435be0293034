package hunt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

const python = "/usr/bin/python3"

// planted is what the attacker would have the victim's Python execute.
const planted = "print('owned')\n"

// paths is a directory that all can enter, with one of the victim's and one of the
// attacker's in it.
type paths struct {
	all, mine, theirs string
}

func newPaths(t *testing.T, mode uint32) paths {
	t.Helper()
	p := paths{all: shared(t, mode)}
	p.mine = owned(t, p.all+"/victim", victim, 0o700)
	p.theirs = owned(t, p.all+"/attacker", attacker, 0o755)
	return p
}

// must fails the test where something could not be laid out.
func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// link makes a link of the attacker's, in place of one that may be there.
func link(t testing.TB, to, at string) {
	t.Helper()
	must(t, os.Symlink(to, at+".new"), os.Lchown(at+".new", attacker, attacker), os.Rename(at+".new", at))
}

// give has all below a directory belong to a user.
func give(t testing.TB, dir string, uid int) {
	t.Helper()
	must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	}))
}

// env is an environment of the victim's, with directories of its own for all that is not
// given.
func (p paths) env(vars ...string) []string {
	env := append([]string{"PATH=/usr/bin:/bin"}, vars...)
	for _, v := range []string{"HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR", "RSSWARDEN_RUNTIME"} {
		set := false
		for _, e := range vars {
			set = set || strings.HasPrefix(e, v+"=")
		}
		if !set {
			env = append(env, v+"="+p.mine)
		}
	}
	return env
}

// run is a run of the victim's.
func (p paths) run(env []string, args ...string) *exec.Cmd {
	cmd := as(victim, exec.Command(binary, append([]string{"run"}, args...)...))
	cmd.Env, cmd.Dir = env, "/"
	return cmd
}

// hook lets the victim lay the hook down once in its own cache, and returns its directory.
func (p paths) hook(t *testing.T) string {
	t.Helper()
	r := finish(t, p.run(p.env(), "--", "true"))
	dirs, _ := filepath.Glob(p.mine + "/rsswarden/hook-*")
	if r.status != 0 || len(dirs) != 1 {
		t.Fatalf("no hook was laid down: %v, %+v", dirs, r)
	}
	return dirs[0]
}

// waits is a command that says where it is, waits for the file "go", and starts Python.
func (p paths) waits() []string {
	return []string{"--", "sh", "-c", `echo "$PYTHONPATH" >"$1/at.part"; mv "$1/at.part" "$1/at"
while ! [ -e "$1/go" ]; do sleep .01; done; exec ` + python + ` -c 'print("done")'`, "sh", p.mine}
}

// swapped runs such a command, makes a change while it waits, and expects that nothing of
// the attacker's was executed.
func (p paths) swapped(t *testing.T, cmd *exec.Cmd, change func()) result {
	t.Helper()
	go func() {
		for range 3000 {
			if _, err := os.Stat(p.mine + "/at"); err == nil {
				change()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_ = os.WriteFile(p.mine+"/go", nil, 0o644)
	}()
	r := finish(t, cmd)
	if r.status != 0 || !strings.Contains(r.stdout, "done") || strings.Contains(r.stdout, "owned") {
		t.Errorf("status %d, said %q\n%s", r.status, r.stdout, r.stderr)
	}
	return r
}

// plant makes a hook of the attacker's at dir, with what the real one holds but for a
// changed sitecustomize.py.
func plant(t *testing.T, hook, dir, sitecustomize string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(dir), 0o755), os.CopyFS(dir, os.DirFS(hook)))
	must(t, filepath.Walk(dir, func(path string, i os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if i.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	}))
	if sitecustomize != "" {
		must(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(sitecustomize), 0o644))
	}
}

// TestAttackPaths: links and files that another user puts where the victim's run, or
// root's report, looks.
func TestAttackPaths(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs " + python)
	}

	// The link is the attacker's; while the command runs it leads to a planted hook.
	for _, c := range []struct{ name, variable, below string }{
		{"link in place of XDG_CACHE_HOME", "XDG_CACHE_HOME", ""},
		{"link above XDG_CACHE_HOME", "XDG_CACHE_HOME", "/deep"},
		{"link two levels above XDG_CACHE_HOME", "XDG_CACHE_HOME", "/very/deep"},
		{"link in place of HOME", "HOME", ""},
		{"link above HOME", "HOME", "/deep"},
		{"link of the runtime, where the hook falls back to", "RSSWARDEN_RUNTIME", ""},
		{"link of TMPDIR, where the hook falls back to", "TMPDIR", ""},
	} {
		attack(t, c.name, func(t *testing.T) {
			p := newPaths(t, 0o755)
			hook := p.hook(t)
			good := owned(t, p.all+"/good", victim, 0o700)
			must(t, os.MkdirAll(good+c.below, 0o700))
			give(t, good, victim)
			at := p.theirs + "/link"
			link(t, good, at)
			env := []string{c.variable + "=" + at + c.below}
			switch c.variable {
			case "HOME":
				env = append(env, "XDG_CACHE_HOME=")
			case "RSSWARDEN_RUNTIME", "TMPDIR":
				// No cache can be used: the hook goes to the run directory.
				env = append(env, "XDG_CACHE_HOME=/proc/nowhere")
			}
			if c.variable == "TMPDIR" {
				env = append(env, "RSSWARDEN_RUNTIME=")
			}
			p.swapped(t, p.run(p.env(env...), p.waits()...), func() {
				used, _ := os.ReadFile(p.mine + "/at")
				path := strings.TrimSpace(string(used))
				if strings.HasPrefix(path, at+"/") {
					plant(t, hook, p.theirs+"/evil"+strings.TrimPrefix(path, at), planted)
				}
				link(t, p.theirs+"/evil", at)
			})
		})
	}

	// The link changes all the time: whatever is checked may be another when it is used.
	attack(t, "link that changes while it is looked at", func(t *testing.T) {
		p := newPaths(t, 0o755)
		hook := p.hook(t)
		must(t, os.Mkdir(p.theirs+"/evil", 0o755))
		plant(t, hook, p.theirs+"/evil/rsswarden/"+filepath.Base(hook), planted)
		give(t, p.theirs, attacker)
		at := p.theirs + "/link"
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.Symlink([]string{p.mine, p.theirs + "/evil"}[i%2], at+".new")
				_ = os.Lchown(at+".new", attacker, attacker)
				_ = os.Rename(at+".new", at)
			}
		}()
		for range 20 {
			r := finish(t, p.run(p.env("XDG_CACHE_HOME="+at), "--", python, "-c", "print('done')"))
			if r.status != 0 || strings.Contains(r.stdout, "owned") {
				t.Errorf("status %d, said %q\n%s", r.status, r.stdout, r.stderr)
				break
			}
		}
		close(stop)
		<-stopped
	})

	attack(t, "directory of the attacker's above the cache", func(t *testing.T) {
		p := newPaths(t, 0o755)
		hook := p.hook(t)
		owned(t, p.theirs+"/cache", victim, 0o700)
		p.swapped(t, p.run(p.env("XDG_CACHE_HOME="+p.theirs+"/cache"), p.waits()...), func() {
			must(t, os.Rename(p.theirs+"/cache", p.theirs+"/away"))
			plant(t, hook, p.theirs+"/cache/rsswarden/"+filepath.Base(hook), planted)
		})
	})

	// In a user namespace the attacker's files have the ID of all who have none.
	for name, flags := range map[string][]string{
		"hook of an unmapped owner, as root of a user namespace":      {"-U", "-r"},
		"hook of an unmapped owner, without root in a user namespace": {"-U"},
	} {
		for where, mode := range map[string]uint32{"": 0o755, " in a sticky directory": 0o1777} {
			attack(t, name+where, func(t *testing.T) {
				if err := as(victim, exec.Command("unshare", append(flags, "true")...)).Run(); err != nil {
					t.Skipf("no user namespaces here: %v", err)
				}
				p := newPaths(t, mode)
				hook := p.hook(t)
				cache := p.theirs + "/cache"
				plant(t, hook, cache+"/rsswarden/"+filepath.Base(hook), "")
				give(t, p.theirs, attacker)
				must(t, syscall.Chmod(p.theirs, mode))
				inner := p.run(p.env("XDG_CACHE_HOME="+cache), p.waits()...)
				cmd := as(victim, exec.Command("unshare", append(flags, inner.Args...)...))
				cmd.Env, cmd.Dir = inner.Env, "/"
				p.swapped(t, cmd, func() {
					must(t, os.WriteFile(cache+"/rsswarden/"+filepath.Base(hook)+"/sitecustomize.py", []byte(planted), 0o644))
				})
			})
		}
	}

	// Others may be first at every name that is used below a directory like /tmp.
	own := "rsswarden-" + strconv.Itoa(victim)
	for name, put := range map[string]func(at string) error{
		"directory":        func(at string) error { return os.Mkdir(at, 0o777) },
		"file":             func(at string) error { return os.WriteFile(at, nil, 0o666) },
		"pipe":             func(at string) error { return syscall.Mkfifo(at, 0o666) },
		"socket":           func(at string) error { return syscall.Mknod(at, syscall.S_IFSOCK|0o666, 0) },
		"dangling link":    func(at string) error { return os.Symlink(filepath.Dir(at)+"/made", at) },
		"link to a secret": func(at string) error { return os.Symlink(filepath.Dir(at)+"/victim", at) },
	} {
		attack(t, name+" in place of the run directory", func(t *testing.T) {
			p := newPaths(t, 0o1777)
			at := p.all + "/" + own
			must(t, put(at), os.Lchown(at, attacker, attacker))
			r := finish(t, p.run(p.env("RSSWARDEN_RUNTIME="+p.all, "TMPDIR="+p.all), "--", "sh", "-c", `echo "at $RSSWARDEN_DIR"`))
			if r.status != 0 || strings.Contains(r.stdout, p.all) || !strings.Contains(r.stderr, "is not used") {
				t.Errorf("status %d, said %q\n%s", r.status, r.stdout, r.stderr)
			}
			if _, err := os.Lstat(p.all + "/made"); err == nil {
				t.Error("something was made where the link leads to")
			}
			if left, _ := filepath.Glob(p.mine + "/*"); len(left) > 0 && name != "directory" {
				for _, l := range left {
					if strings.HasPrefix(filepath.Base(l), "run.") {
						t.Errorf("made through the link: %s", l)
					}
				}
			}
		})
	}

	// A hook that is not ours byte for byte is not executed, and that is said.
	for name, change := range map[string]func(hook string) error{
		"changed file": func(h string) error { return os.WriteFile(h+"/sitecustomize.py", []byte(planted), 0o600) },
		"one file more": func(h string) error {
			return os.WriteFile(h+"/usercustomize.py", []byte(planted), 0o644)
		},
		"file of the attacker's":  func(h string) error { return os.Chown(h+"/sitecustomize.py", attacker, attacker) },
		"file that all can write": func(h string) error { return os.Chmod(h+"/sitecustomize.py", 0o666) },
		"pipe in place of a file": func(h string) error {
			return errors.Join(os.Remove(h+"/sitecustomize.py"), syscall.Mkfifo(h+"/sitecustomize.py", 0o600))
		},
		"file that is missing": func(h string) error { return os.Remove(h + "/sitecustomize.py") },
	} {
		attack(t, "tampered hook: "+name, func(t *testing.T) {
			p := newPaths(t, 0o755)
			hook := p.hook(t)
			must(t, change(hook))
			events := p.mine + "/events"
			r := finish(t, p.run(p.env(), "--events", events, "--", python, "-c", `import os; print("done", os.environ["PYTHONPATH"])`))
			if r.status != 0 || strings.Contains(r.stdout, "owned") || !strings.Contains(r.stdout, "done /") || strings.Contains(r.stdout, hook) {
				t.Errorf("status %d, said %q", r.status, r.stdout)
			}
			if !strings.Contains(r.stderr, hook) {
				t.Errorf("no line names %s:\n%s", hook, r.stderr)
			}
			if e, err := os.ReadFile(events); err != nil || !strings.Contains(string(e), `"event":"fault"`) || !strings.Contains(string(e), hook) {
				t.Errorf("no event names it: %v", err)
			}
		})
	}

	attackOutputs(t)
	attackNames(t)
}

// attackOutputs puts things where the victim, or root, writes a file.
func attackOutputs(t *testing.T) {
	const secret = "the victim's own\n"
	for _, c := range []struct {
		name string
		put  func(p paths, at string) error
	}{
		{"link to the victim's file", func(p paths, at string) error { return os.Symlink(p.mine+"/secret", at) }},
		{"link through a link", func(p paths, at string) error {
			return errors.Join(os.Symlink(p.mine+"/secret", p.theirs+"/next"), os.Lchown(p.theirs+"/next", attacker, attacker), os.Symlink(p.theirs+"/next", at))
		}},
		{"dangling link", func(p paths, at string) error { return os.Symlink(p.mine+"/made", at) }},
		{"pipe", func(_ paths, at string) error { return syscall.Mkfifo(at, 0o666) }},
		{"socket", func(_ paths, at string) error { return syscall.Mknod(at, syscall.S_IFSOCK|0o666, 0) }},
		{"file of the attacker's", func(_ paths, at string) error { return os.WriteFile(at, nil, 0o666) }},
	} {
		for _, out := range []string{"--html", "--svg", "--events"} {
			for who, uid := range map[string]uint32{"victim": victim, "root": 0} {
				attack(t, fmt.Sprintf("%s at the place of %s of %s", c.name, out, who), func(t *testing.T) {
					p := newPaths(t, 0o1777)
					env := p.env()
					must(t, os.WriteFile(p.mine+"/secret", []byte(secret), 0o600), os.Chown(p.mine+"/secret", int(uid), int(uid)))
					at := p.all + "/out"
					must(t, c.put(p, at), os.Lchown(at, attacker, attacker))
					if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink == 0 {
						must(t, os.Chmod(at, 0o666)) // the umask has taken a part
					}
					// The attacker has the pipe open, so that opening it would not wait.
					var read *os.File
					if c.name == "pipe" {
						var err error
						read, err = os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
						must(t, err)
						defer read.Close()
					}
					args := []string{"run", "--events", at, "--", "true"}
					if out != "--events" {
						records := owned(t, p.all+"/records", int(uid), 0o700)
						recorded := as(uid, exec.Command(binary, "run", "--record", records, "--", "true"))
						recorded.Env, recorded.Dir = env, "/"
						r := finish(t, recorded)
						if kept, _ := os.ReadDir(records); r.status != 0 || len(kept) == 0 {
							t.Fatalf("nothing to report on: %+v", r)
						}
						args = []string{"report", "--no-slurm", out, at, records}
					}
					cmd := as(uid, exec.Command(binary, args...))
					cmd.Env, cmd.Dir = env, "/"
					r := finish(t, cmd)
					if out == "--events" && r.status != 0 {
						t.Errorf("the command has status %d\n%s", r.status, r.stderr)
					}
					replaced := c.name == "file of the attacker's" && r.status == 0 // root may
					if out != "--events" && !replaced && !strings.Contains(r.stderr, "cannot write "+at+": ") {
						t.Errorf("not refused: status %d, said %q\n%s", r.status, r.stdout, r.stderr)
					}
					if got, err := os.ReadFile(p.mine + "/secret"); err != nil || string(got) != secret {
						t.Errorf("the secret was overwritten: %q, %v", got, err)
					}
					if _, err := os.Lstat(p.mine + "/made"); err == nil {
						t.Error("a file was made where the link leads to")
					}
					if read != nil {
						var buf [16]byte
						if n, _ := read.Read(buf[:]); n > 0 {
							t.Errorf("the pipe got %q", buf[:n])
						}
					}
					if info, err := os.Lstat(at); err == nil && info.Sys().(*syscall.Stat_t).Uid == attacker && info.Mode().IsRegular() && info.Size() > 0 {
						t.Errorf("%d bytes were written to the attacker's file", info.Size())
					}
				})
			}
		}
	}

	attack(t, "hard link to the victim's file at the place of a report", func(t *testing.T) {
		p := newPaths(t, 0o1777)
		must(t, os.WriteFile(p.mine+"/secret", []byte(secret), 0o600), os.Chown(p.mine+"/secret", victim, victim), os.Link(p.mine+"/secret", p.all+"/out"))
		if r := finish(t, p.run(p.env(), "--record", p.mine+"/records", "--", "true")); r.status != 0 {
			t.Fatalf("%+v", r)
		}
		cmd := as(victim, exec.Command(binary, "report", "--no-slurm", "--html", p.all+"/out", p.mine+"/records"))
		cmd.Env, cmd.Dir = p.env(), "/"
		r := finish(t, cmd)
		if got, _ := os.ReadFile(p.mine + "/secret"); string(got) != secret || r.status != 0 {
			t.Errorf("status %d, the secret is %q\n%s", r.status, got, r.stderr)
		}
	})

	// What a user names by purpose works as before.
	for _, to := range []string{"/dev/stdout", "/dev/fd/1", "/dev/null", "link of the victim's"} {
		t.Run("no attack: report --html "+to, func(t *testing.T) {
			p := newPaths(t, 0o755)
			if r := finish(t, p.run(p.env(), "--record", p.mine+"/records", "--", "true")); r.status != 0 {
				t.Fatalf("%+v", r)
			}
			at := to
			if at == "link of the victim's" {
				at = p.mine + "/latest.html"
				must(t, os.Symlink("page.html", at), os.Lchown(at, victim, victim), os.WriteFile(p.mine+"/page.html", nil, 0o600), os.Chown(p.mine+"/page.html", victim, victim))
			}
			// The pipe must be the victim's, to be opened by its name.
			cmd := as(victim, exec.Command("sh", "-c", `"$@" | cat`, "sh", binary, "report", "--no-slurm", "--html", at, p.mine+"/records"))
			cmd.Env, cmd.Dir = p.env(), "/"
			r := finish(t, cmd)
			page := r.stdout
			if strings.HasPrefix(at, p.mine) {
				data, _ := os.ReadFile(p.mine + "/page.html")
				page = string(data)
			}
			if r.status != 0 || to != "/dev/null" && !strings.Contains(page, "</html>") {
				t.Errorf("status %d, %d bytes\n%s", r.status, len(page), r.stderr)
			}
		})
	}
}

// attackNames chooses names that would move a terminal. What report makes of them is in
// supervisor/render, TestHostileRecords.
func attackNames(t *testing.T) {
	const evil = "\x1b[2J\u009b31m\u202e\u2066\u200f\u061c\xff"
	for name, set := range map[string]func(p paths, cmd *exec.Cmd){
		"command": func(p paths, cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--", "sh", "-c", "sleep .5", evil) },
		"file":    func(p paths, cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--", p.mine+"/"+evil) },
		"process": func(p paths, cmd *exec.Cmd) {
			cmd.Args = append(cmd.Args, "--", "sh", "-c", `printf '\033[2J\302\23331m\342\200\256' >/proc/self/comm; sleep .5`)
		},
		"variable of the place": func(p paths, cmd *exec.Cmd) {
			cmd.Env = append([]string{"RSSWARDEN_RUNTIME=/nowhere/" + evil}, cmd.Env...)
			cmd.Args = append(cmd.Args, "--", "true")
		},
		"job": func(p paths, cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "SLURM_JOB_NAME="+evil, "SLURM_JOB_USER="+evil)
			cmd.Args = append(cmd.Args, "--", "true")
		},
	} {
		attack(t, "escape sequences in the name of a "+name, func(t *testing.T) {
			p := newPaths(t, 0o755)
			script := p.mine + "/" + evil
			must(t, os.WriteFile(script, []byte("#!/bin/sh\nsleep .5\n"), 0o755), os.Chown(script, victim, victim))
			cmd := p.run(p.env(), "--interval", "100ms", "--events", p.mine+"/events", "--record", "none")
			set(p, cmd)
			r := finish(t, cmd)
			if r.status != 0 {
				t.Errorf("status %d\n%s", r.status, r.stderr)
			}
			events, err := os.ReadFile(p.mine + "/events")
			must(t, err)
			outputs := map[string]string{"stderr": r.stderr, "events": string(events)}
			for what, text := range outputs {
				i := strings.IndexFunc(text, func(r rune) bool {
					return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
				})
				if i >= 0 || !utf8.ValidString(text) {
					i = max(i, 0)
					t.Errorf("%s: %q", what, text[max(i-40, 0):min(i+40, len(text))])
				}
			}
		})
	}
}
