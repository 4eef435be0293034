package integrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// image is a sandbox that Apptainer runs: the Debian 13 root, as it is to be seen where
// Apptainer is.
const image = "/mnt"

// TestApptainer: from a container whose environment is kept the loader hook says hello;
// from one in which something keeps it out rsswarden says what, and with the script
// here it does say hello.
func TestApptainer(t *testing.T) {
	t.Parallel()
	const numbers, leaveOut = "it is in a PID namespace of its own, where the hook does nothing", "leave out what makes that namespace"
	const dropped, passOn = "neither RSSWARDEN_DIR nor the hook's directory on PYTHONPATH is in its environment", "pass RSSWARDEN_DIR and PYTHONPATH on"
	for name, c := range map[string]struct {
		start string
		says  string // of what keeps it out; empty where nothing does
		cure  string // … with what to do
	}{
		"kept":                {start: "rsswarden run -- apptainer exec @image"},
		"cleaned":             {"rsswarden run -- apptainer exec --cleanenv @image", dropped, passOn},
		"PID numbers":         {"rsswarden run -- apptainer exec --pid @image", numbers, leaveOut},
		"all contained":       {"rsswarden run -- apptainer exec --containall --bind @dir/work @image", numbers, leaveOut},
		"contained":           {"rsswarden run -- apptainer exec --contain --bind @dir/work @image", "it does not see @dir/rsswarden-", "(of Apptainer --bind)"},
		"cleaned and cured":   {start: "train.sh --cleanenv @image"},
		"contained and cured": {start: "train.sh --contain --bind @dir/work @image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "apptainer/train.sh")
			wardentest.Write(t, p.file("work/loads.py"), string(wardentest.ReadFile(t, "testdata/loads.py")))
			words := strings.Fields(strings.NewReplacer("@dir", p.dir, "@image", image).Replace(c.start))
			r := p.start(p.asPlainUser(append(words, python, p.file("work/loads.py"), p.file("work/enough"), "bare")...)...)
			want := "event=loader what=hello"
			if c.says != "" {
				want = "event=loader what=unreached"
			}
			e := r.event(want)
			p.enough()
			if status := r.ends(); status != 7 || !strings.Contains(r.stdout.String(), "down") {
				t.Errorf("status %d, stdout %q", status, &r.stdout)
			}
			says := strings.ReplaceAll(c.says, "@dir", p.dir)
			if why, _ := e["reason"].(string); c.says != "" && !strings.Contains(why, says) {
				t.Errorf("the event says %q, want %q", why, says)
			}
			told := strings.Count(r.stderr.String(), "the hook does not reach process ")
			if c.says != "" && (told != 1 || !strings.Contains(r.stderr.String(), c.cure)) || c.says == "" && told != 0 {
				t.Errorf("stderr:\n%s", &r.stderr)
			}
			t.Logf("%s", &r.stderr)
		})
	}
}

// TestApptainerTrains: a training in a container gets the data that it gets without
// rsswarden, although by the hook its workers are trimmed and replaced, or, where PID
// numbers of its own keep the hook out, trimmed by ptrace from outside.
func TestApptainerTrains(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "../train/train.py", "../train/data.py")
	training := []string{image, python, "train.py", "--data", p.file("lmdb"), "--records", "2000", "--record-bytes", "65536",
		"--workers", "2", "--persistent", "--epochs", "2", "--step-ms", "10"}
	bare := p.start(p.asPlainUser(slices.Concat([]string{"apptainer", "exec"}, training)...)...)
	want := wardentest.Checksum(bare.trained(t))
	if want == "none" {
		t.Fatalf("%s", &bare.stdout)
	}
	for name, c := range map[string]struct {
		rules   []string
		options []string
		leak    string
		events  []string
	}{
		"kept": {rules: []string{"--at", "65%:trim", "--at", "72%:recycle"}, leak: "64", events: []string{"what=trimmed", "what=recycled"}},
		// A process that does not stop at once is left alone for half a minute: by that rule.
		"PID numbers": {rules: []string{"--at", "70%:trim", "--at", "75%:trim", "--at", "80%:trim", "--trim", "auto"}, options: []string{"--pid"}, leak: "0", events: []string{"what=trimmed by=ptrace"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, "../train/train.py", "../train/data.py")
			r := p.start(p.asPlainUser(slices.Concat([]string{"rsswarden", "run", "--limit", "1200M", "--record", "none", "--at", "none"}, c.rules,
				[]string{"--", "apptainer", "exec"}, c.options, training, []string{"--leak-worker", c.leak})...)...)
			if got := wardentest.Checksum(r.trained(t)); got != want {
				t.Errorf("checksum %v, bare %v\n%s", got, want, &r.stderr)
			}
			t.Logf("%s", &r.stderr)
			for _, what := range c.events {
				n, freed := 0, 0.0
				for _, e := range p.events("event=loader " + what) {
					bytes, _ := e["freed_bytes"].(float64) // not there where it is 0
					n, freed = n+1, freed+bytes
				}
				t.Logf("%s: %d times, %.0f MiB given back", what, n, freed/(1<<20))
				if n == 0 || strings.Contains(what, "trimmed") && freed < 64<<20 {
					t.Errorf("%s: %d times, %.0f bytes given back", what, n, freed)
				}
			}
		})
	}
}

// trained waits for a training that ends well and returns what it printed.
func (r *running) trained(t *testing.T) string {
	t.Helper()
	if status := r.ends(); status != 0 {
		t.Fatalf("status %d\n%s%s", status, &r.stdout, &r.stderr)
	}
	return r.stdout.String()
}

// grows is a program without the hook: it takes 300 MB, and says when it got a signal.
const grows = `import signal, sys, time
if sys.argv[1] == "asked":
    signal.signal(signal.SIGUSR2, lambda number, frame: print("asked", flush=True))
held = []
for _ in range(30):
    held.append(b"\x55" * (10 << 20))
    time.sleep(0.1)
print("end", flush=True)
`

// TestApptainerSignal: a signal asks the program in a container, also where that is not
// known to train. Apptainer itself would pass it on to one that has no handler and dies.
func TestApptainerSignal(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"--cleanenv", "--cleanenv --pid"} {
		for argument, want := range map[string]string{"asked": "asked\nend\n", "deaf": "end\n"} {
			t.Run(options+" "+argument, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				wardentest.Write(t, p.file("grows.py"), grows)
				words := strings.Fields("rsswarden run --limit 400M --record none --at none --at 50%:signal=USR2 -- apptainer exec " + options)
				r := p.start(p.asPlainUser(append(words, image, python, "grows.py", argument)...)...)
				if out := r.trained(t); out != want {
					t.Errorf("stdout %q, want %q\n%s", out, want, &r.stderr)
				}
			})
		}
	}
}
