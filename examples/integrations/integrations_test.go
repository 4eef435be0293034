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

	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	if !r.endsWithin(rsstest.Patience) {
		r.place.t.Fatalf("%v still ran after %v\n%s%s", r.Args, rsstest.Patience, &r.stdout, &r.stderr)
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

var (
	rankProcess = regexp.MustCompile(`(?m)^rank (\d) of (\d): process (\d+)$`)
	rankData    = regexp.MustCompile(`(?m)^rank \d: data [0-9a-f]{32}$`)
)

// launch is the beginning of a command line of Accelerate, with what it would warn of
// where it is not said.
var launch = strings.Fields("accelerate launch --num_machines 1 --mixed_precision no --dynamo_backend no")

// accelerates makes a place for Accelerate on processors, without a GPU, and what starts
// a command there. PyTorch asks for the name of the node and waits where no server answers:
// it is localhost. Debian's has no libuv, which a store over TCP would want.
func accelerates(t *testing.T) (*place, func(words ...string) *running) {
	t.Helper()
	p := newPlace(t, "accelerate/train.py")
	p.env = append(p.env, "ACCELERATE_USE_CPU=true", "USE_LIBUV=0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "GLOO_SOCKET_IFNAME=lo")
	return p, func(words ...string) *running {
		t.Helper()
		named := []string{"unshare", "--uts", "sh", "-c", `hostname localhost && exec "$@"`, "sh"}
		return p.start(p.inSid(slices.Concat(named, words)...)...)
	}
}

// TestAccelerate: behind Accelerate's launcher workers of each rank are recycled, in the
// loader that Accelerate puts in the place of PyTorch's own; a
// signal asks each rank, who then save together, and not the launcher; each rank gets the
// data that it gets without rsswarden; and the exit status is the launcher's, which is 1
// whatever the status of a training that fails.
func TestAccelerate(t *testing.T) {
	wardentest.Long(t)
	t.Parallel()
	for _, c := range []struct {
		name, launch, training string
		ranks, status          int
		rules, grows           string
	}{
		{"two ranks", "--multi_gpu --num_processes 2 --main_process_port 0 --rdzv_backend c10d --rdzv_conf store_type=file",
			"train.py --backend gloo --records 1000", 2, 0, "--limit 4G --at 42%:signal=USR2 --at 46%:recycle", "--leak 1024 --step-ms 30"},
		{"one process", "--cpu --num_processes 1", "fails.py --records 800 --epochs 1", 1, 1, "--limit 2G --at 43%:signal=USR2 --at 48%:recycle", "--leak 1024 --step-ms 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, start := accelerates(t)
			wardentest.Write(t, p.file("fails.py"), "import train\nif __name__ == '__main__':\n    train.main()\n    raise SystemExit(7)\n")
			words := slices.Concat(launch, strings.Fields(c.launch), strings.Fields(c.training))
			bare := start(words...)
			if status := bare.ends(); status != c.status {
				t.Fatalf("without rsswarden: status %d, want %d\n%s%s", status, c.status, &bare.stdout, &bare.stderr)
			}
			want := rankData.FindAllString(bare.stdout.String(), -1)
			slices.Sort(want)
			if _, err := os.Stat(p.file("asked")); err == nil || len(want) != c.ranks {
				t.Fatalf("without rsswarden: saved: %v\n%s", err, &bare.stdout)
			}

			r := start(slices.Concat(strings.Fields("rsswarden run --accounting noshared --record none --at none"), strings.Fields(c.rules),
				[]string{"--"}, words, strings.Fields(c.grows))...)
			if status := r.ends(); status != c.status {
				t.Fatalf("status %d, want %d\n%s%s", status, c.status, &r.stdout, &r.stderr)
			}
			out := r.stdout.String()
			got := rankData.FindAllString(out, -1)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("data %v, without rsswarden %v", got, want)
			}
			ranks := rankProcess.FindAllStringSubmatch(out, -1)
			if len(ranks) != c.ranks {
				t.Fatalf("ranks %v\n%s", ranks, out)
			}
			for _, m := range ranks {
				for _, what := range []string{"hello", "recycled"} {
					n := len(p.events("event=loader what=" + what + " pid=" + m[3]))
					t.Logf("rank %s: %s %d times", m[1], what, n)
					if what == "recycled" && n == 0 && strings.Contains(r.stderr.String(), "the data set would be sent again") {
						continue // to send it takes longer than a recycle is worth, on a slow machine
					}
					if n == 0 || m[2] != fmt.Sprint(c.ranks) {
						t.Errorf("rank %s of %s: %s %d times", m[1], m[2], what, n)
					}
				}
				if !strings.Contains(out, "process "+m[3]+": asked\n") {
					t.Errorf("rank %s was not asked:\n%s", m[1], out)
				}
			}
			if _, err := os.Stat(p.file("asked/model.safetensors")); err != nil {
				t.Error(err)
			}
			// The launcher has no handler and would have died of it; it is not named either.
			pids := map[string]bool{}
			for _, m := range ranks {
				pids[m[3]] = true
			}
			for line := range strings.Lines(r.stderr.String()) {
				if _, list, sent := strings.Cut(line, ": USR2 sent to process"); sent {
					for _, pid := range regexp.MustCompile(`\d+`).FindAllString(list, -1) {
						if !pids[pid] {
							t.Errorf("%s is no rank: %s", pid, line)
						}
					}
				}
			}
			t.Logf("%s", &r.stderr)
		})
	}
}

// TestLightning: with the callback a training saves a checkpoint when rsswarden asks it
// to, and goes on to its end; without rsswarden the same program saves none.
func TestLightning(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	for _, c := range []struct {
		name  string
		words []string
		saves bool
	}{
		{"asked", []string{"rsswarden", "run", "--limit", "400M", "--at", "93%:signal=USR2", "--", python, "train.py"}, true},
		{"without rsswarden", []string{python, "train.py"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "lightning/train.py", "lightning/when_asked.py")
			here, err := os.Getwd()
			wardentest.NoError(t, err)
			p.env = append(p.env, "PYTHONPATH="+here+"/testdata/lightning")
			r := p.start(c.words...)
			if status := r.ends(); status != 0 || r.stdout.String() != "trained 200 steps\n" {
				t.Fatalf("status %d, %q\n%s", status, &r.stdout, &r.stderr)
			}
			_, err = os.Stat(p.file("asked.ckpt"))
			if (err == nil) != c.saves {
				t.Fatalf("the checkpoint: %v\n%s", err, &r.stderr)
			}
			if !c.saves {
				return
			}
			out, err := exec.Command(python, "-W", "ignore", "-c", `import torch; print(torch.load("`+p.file("asked.ckpt")+`")["global_step"])`).Output()
			var step int
			if _, scanErr := fmt.Sscan(string(out), &step); err != nil || scanErr != nil || step == 0 || step >= 200 {
				t.Errorf("saved at step %q, %v", out, err)
			}
			if n := strings.Count(r.stderr.String(), ": USR2 sent to process "); n != 1 {
				t.Errorf("it was asked %d times:\n%s", n, &r.stderr)
			}
		})
	}
}
