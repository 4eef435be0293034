package doctor

import (
	"errors"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// answered is a Python in which all is well.
func answered(change func(*Python)) Python {
	p := Python{Names: []string{"python3"}, Path: "/bin/python3", Answered: true, Hello: true, Patience: "10s",
		answer: answer{Version: "3.11.2", Implementation: "cpython", Armed: true, Torch: "1.13.0"}}
	change(&p)
	return p
}

func TestPython(t *testing.T) {
	noTorch := func(p *Python) { p.Torch, p.Hello = "", false }
	for _, test := range []struct {
		name   string
		python Python
		want   want
		served bool
	}{
		{"all", answered(func(*Python) {}), want{OK, "python3 = /bin/python3, Python 3.11.2: torch 1.13.0: loader workers are trimmed and recycled", "", ""}, true},
		{"no torch", answered(func(p *Python) { noTorch(p); p.Missing = "No module named 'torch'" }), want{Limited, "has no torch", "doctor -- PYTHON", ""}, true},
		{"an unknown torch", answered(func(p *Python) { p.Why = "torch 9 has not been tried" }), want{Limited, "trimmed, not recycled: torch 9", "README", ""}, false},
		{"a broken torch", answered(func(p *Python) { noTorch(p); p.Broken = "OSError: libc10.so" }), want{Limited, "cannot be imported: OSError", "import torch", ""}, false},
		{"a slow torch", answered(func(p *Python) { noTorch(p); p.Late = true }), want{Limited, "longer than 10s", "--timeout", ""}, false},
		{"no room for torch", answered(func(p *Python) { noTorch(p); p.Spared = "only 300 MiB is left below the limit" }), want{Limited, "not imported: only 300 MiB", "more room", ""}, false},
		{"no hello", answered(func(p *Python) { p.Hello = false }), want{Off, "did not say hello", "--trim auto", ""}, false},
		{"switched off", answered(func(p *Python) { p.Off = "ValueError" }), want{Off, "switched itself off: ValueError", "--trim auto", ""}, false},
		{"isolated", answered(func(p *Python) { noTorch(p); p.Isolated, p.NoEnviron, p.Armed = true, true, false }), want{Off, "started with -I", "without -I; workers", ""}, false},
		{"no environment", answered(func(p *Python) { noTorch(p); p.NoEnviron, p.Armed = true, false }), want{Off, "started with -E", "without -E", ""}, false},
		{"no site", answered(func(p *Python) { noTorch(p); p.NoSite, p.Armed = true, false }), want{Off, "started with -S", "without -S", ""}, false},
		{"a wrapper", answered(func(p *Python) { noTorch(p); p.Armed = false }), want{Off, "takes PYTHONPATH or RSSWARDEN_DIR away", "wrapper", ""}, false},
		{"old", answered(func(p *Python) { noTorch(p); p.Version = "3.7.17"; p.Armed = false }), want{Off, "Python 3.7.17: the hook does nothing there", "--worker-signal", ""}, false},
		{"2.7", answered(func(p *Python) { noTorch(p); p.Version = "2.7.18"; p.Armed = false }), want{Off, "CPython 3.8", "--trim auto", ""}, false},
		{"PyPy", answered(func(p *Python) { noTorch(p); p.Implementation = "pypy"; p.Armed = false }), want{Off, "pypy 3.11.2", "--trim auto", ""}, false},
		{"hangs", Python{Names: []string{"python"}, Path: "/bin/python", Late: true, Patience: "10s"}, want{Off, "did not answer within 10s and was killed", "--timeout", ""}, false},
		{"no Python", Python{Names: []string{"cat"}, Path: "/bin/cat", Stderr: "cat: invalid option -- 'c'"}, want{Off, "not a Python, or it cannot start: cat: invalid", "doctor -- PYTHON", ""}, false},
		{"not there", Python{Names: []string{"nix"}, Err: errors.New("no such file")}, want{Off, "nix: no such file", "doctor -- PYTHON", ""}, false},
		{"unreadable", answered(func(p *Python) { p.Unreadable = true }), want{Limited, "not dumpable", "", ""}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, served := test.python.check()
			test.want.check(t, c)
			if served != test.served {
				t.Errorf("served is %v", served)
			}
		})
	}
}

// TestPythons: which Pythons decide whether the job is protected.
func TestPythons(t *testing.T) {
	good := answered(func(*Python) {})
	bare := answered(func(p *Python) { p.Names, p.Torch, p.Hello, p.Missing = []string{"python"}, "", false, "no torch" })
	unknown := answered(func(p *Python) { p.Why = "not tried" })
	old := answered(func(p *Python) { p.Version, p.Torch, p.Armed = "2.7.18", "", false })
	for _, test := range []struct {
		name  string
		facts pythonFacts
		part  bool
	}{
		{"one that is served", pythonFacts{Pythons: []Python{good}}, false},
		{"of PATH one is enough", pythonFacts{Pythons: []Python{old, good}}, false},
		{"of those named it is not", pythonFacts{Asked: true, Pythons: []Python{old, good}}, true},
		{"with a torch that is not served", pythonFacts{Pythons: []Python{bare, unknown}}, true},
		{"with one that is", pythonFacts{Pythons: []Python{unknown, good}}, false},
		{"without torch", pythonFacts{Pythons: []Python{bare}}, false},
		{"without torch, named", pythonFacts{Asked: true, Pythons: []Python{bare, good}}, false},
		{"none is there", pythonFacts{}, false},
		{"none that works", pythonFacts{Pythons: []Python{old}}, true},
		{"switched off", pythonFacts{NoLoader: "RSSWARDEN_LOADER=off"}, true},
		{"no place for it", pythonFacts{NoHook: errors.New("no place")}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Conclude(pythonChecks(test.facts))
			if r.Protects == test.part || len(r.Why) == 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestUnable: which actions cannot be carried out, and why, as far as it is known.
func TestUnable(t *testing.T) {
	all := answered(func(*Python) {})
	known := answered(func(p *Python) { p.Why = "not tried" })
	waiting := answered(func(p *Python) { p.Trial = event.TrialWaiting })
	wrapped := answered(func(p *Python) { p.Torch, p.Armed = "", false })
	slow := answered(func(p *Python) { p.Torch, p.Hello, p.Late = "", false, true })
	const off, notLoaded = "the loader hook is off", "this Python does not load the hook"
	for name, c := range map[string]struct {
		facts           pythonFacts
		trimBy          settings.TrimMode
		ptraced         bool
		trim, recycle   string
		collectsGarbage bool
	}{
		"all":                   {pythonFacts{Pythons: []Python{all}}, settings.TrimHook, false, "", "", true},
		"no Python":             {pythonFacts{}, settings.TrimHook, false, "", "", true},
		"not known yet":         {pythonFacts{Pythons: []Python{slow}}, settings.TrimHook, false, "", "", true},
		"one of PATH is enough": {pythonFacts{Pythons: []Python{wrapped, all}}, settings.TrimHook, false, "", "", true},
		"not of those named":    {pythonFacts{Asked: true, Pythons: []Python{all, wrapped}}, settings.TrimHook, false, notLoaded, notLoaded, false},
		"an unknown torch":      {pythonFacts{Pythons: []Python{known}}, settings.TrimHook, false, "", "the hook cannot recycle with this PyTorch", true},
		"before its trial":      {pythonFacts{Pythons: []Python{waiting}}, settings.TrimHook, false, "", "not before a trial with this PyTorch", true},
		"--loader off":          {pythonFacts{NoLoader: "x"}, settings.TrimHook, false, off, off, false},
		"but ptrace":            {pythonFacts{NoLoader: "x"}, settings.TrimPtrace, true, "", off, false},
		"ptrace does not work":  {pythonFacts{Pythons: []Python{all}}, settings.TrimPtrace, false, "ptrace does not work here", "", true},
		"--trim off":            {pythonFacts{Pythons: []Python{all}}, settings.TrimOff, false, "--trim is off", "", true},
		"no place for the hook": {pythonFacts{NoHook: errors.New("full")}, settings.TrimHook, false, "the loader hook cannot be put in place", "the loader hook cannot be put in place", false},
	} {
		got := unable(&settings.Policy{Workers: settings.Workers{Trim: c.trimBy}}, c.ptraced, &c.facts)
		if got[event.ActionTrim] != c.trim || got[event.ActionRecycle] != c.recycle || (got[event.ActionGC] == "") != c.collectsGarbage {
			t.Errorf("%s: %q", name, got)
		}
	}
	if unable(&settings.Policy{DryRun: true}, false, &pythonFacts{})[event.ActionRecycle] == "" {
		t.Error("--dry-run recycles")
	}
}
