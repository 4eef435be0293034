// Package integrations_test runs the examples here under the tools they are for, or,
// without a tool, under a stand-in for it, as docs/integrations.md
// says of each.
package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const python = wardentest.Python

// bin is a directory with rsswarden, for PATH.
var bin string

func TestMain(m *testing.M) {
	program, err := wardentest.Find(wardentest.Rsswarden)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin = filepath.Dir(program)
	os.Exit(m.Run())
}

// place is a folder of one test, and the environment of what runs there.
type place struct {
	t   *testing.T
	dir string
	env []string
}

// newPlace makes a folder that has these files of the examples.
func newPlace(t *testing.T, files ...string) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	for _, name := range files {
		wardentest.Write(t, p.file(filepath.Base(name)), string(wardentest.ReadFile(t, name)))
	}
	p.env = slices.DeleteFunc(wardentest.Env(), func(v string) bool { return strings.HasPrefix(v, "PYTHON") })
	p.env = append(p.env, p.path(), "TMPDIR="+p.dir, "XDG_CACHE_HOME="+p.file("cache"),
		"XDG_STATE_HOME="+p.file("state"), "HOME="+p.dir, "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1",
		"OMP_NUM_THREADS=1", "RSSWARDEN_LIMIT=100G", "RSSWARDEN_INTERVAL=200ms", "RSSWARDEN_EVENTS="+p.file("events"))
	return p
}

func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

// path is the variable PATH.
func (p *place) path() string { return "PATH=" + p.dir + ":" + bin + ":/usr/bin:/bin" }

// running is a command in a place.
type running struct {
	*exec.Cmd
	place          *place
	stdout, stderr wardentest.Text
	done           chan struct{}
}

// start starts a command, and kills it where the test ends first.
func (p *place) start(words ...string) *running {
	p.t.Helper()
	r := &running{Cmd: exec.Command(words[0], words[1:]...), place: p, done: make(chan struct{})}
	r.Env, r.Dir = p.env, p.dir
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	for _, dir := range []string{p.dir, bin} { // they are on its PATH, not on ours
		if path := filepath.Join(dir, words[0]); r.Err != nil && !strings.Contains(words[0], "/") {
			if _, err := os.Stat(path); err == nil {
				r.Path, r.Err = path, nil
			}
		}
	}
	wardentest.NoError(p.t, r.Start())
	go func() {
		_ = r.Wait()
		close(r.done)
	}()
	p.t.Cleanup(func() {
		_ = os.WriteFile(p.file("work/enough"), nil, 0o600)
		r.endsWithin(10 * time.Second)
	})
	return r
}

// endsWithin waits for the command, and kills it and is false where that takes longer.
func (r *running) endsWithin(most time.Duration) bool {
	select {
	case <-r.done:
		return true
	case <-time.After(most):
		_ = r.Process.Kill()
		<-r.done
		return false
	}
}

// ends waits for the command and returns its exit status.
func (r *running) ends() int {
	r.place.t.Helper()
	if !r.endsWithin(3 * time.Minute) { // three processes that import PyTorch, beside other tests
		r.place.t.Fatalf("%v still ran after three minutes\n%s%s", r.Args, &r.stdout, &r.stderr)
	}
	return r.ProcessState.ExitCode()
}

// event waits for an event with these values, told as "event=loader what=hello", and
// returns it.
func (r *running) event(want string) wardentest.Event {
	r.place.t.Helper()
	var met []wardentest.Event
	wardentest.Until(r.place.t, "an event "+want, func() bool {
		over := r.over()
		met = r.place.events(want)
		if over && len(met) == 0 {
			r.place.t.Fatalf("no event %s, and it has ended\n%s%s", want, &r.stdout, &r.stderr)
		}
		return len(met) > 0
	})
	return met[0]
}

func (r *running) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// events are those so far that have these values.
func (p *place) events(want string) (all []wardentest.Event) {
	for _, e := range wardentest.ParseLog([]byte(wardentest.Read(p.file("events")))) {
		if matches(e, want) {
			all = append(all, e)
		}
	}
	return all
}

func matches(e wardentest.Event, want string) bool {
	for pair := range strings.FieldsSeq(want) {
		name, value, _ := strings.Cut(pair, "=")
		if fmt.Sprint(e[name]) != value {
			return false
		}
	}
	return true
}

// enough has what waits for work/enough end.
func (p *place) enough() { wardentest.Write(p.t, p.file("work/enough"), "") }

var link = regexp.MustCompile(`\(\.\./examples/integrations/([^/)]+)/([^)]+)\)`)

// TestSnippets: each block of docs/integrations.md is in a file beside those that its
// section links to, and a section links to each folder here.
func TestSnippets(t *testing.T) {
	text := wardentest.ReadFile(t, "../../docs/integrations.md")
	linked := map[string]bool{}
	blocks := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		var files strings.Builder
		for _, m := range link.FindAllStringSubmatch(section, -1) {
			if _, err := os.Stat(filepath.Join(m[1], m[2])); err != nil {
				t.Error(err)
			}
			linked[m[1]] = true
			beside, err := filepath.Glob(m[1] + "/*")
			wardentest.NoError(t, err)
			for _, name := range beside {
				files.Write(wardentest.ReadFile(t, name))
			}
		}
		parts := strings.Split(section, "```")
		for i := 1; i < len(parts); i += 2 {
			_, block, _ := strings.Cut(parts[i], "\n")
			if blocks++; !strings.Contains(files.String(), block) {
				t.Errorf("in no file there:\n%s", block)
			}
		}
	}
	if blocks < 6 {
		t.Errorf("%d blocks", blocks)
	}
	all, err := os.ReadDir(".")
	wardentest.NoError(t, err)
	for _, e := range all {
		if e.IsDir() && e.Name() != "testdata" && !linked[e.Name()] {
			t.Errorf("no section links to %s", e.Name())
		}
	}
}
