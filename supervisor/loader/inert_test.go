package loader

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// seen is what a Python wrote and how it ended.
type seen struct {
	keys           map[string]string
	stdout, stderr string
	code           int
}

// differences compares, and returns those that the list does not hold.
func differences(bare, wrapped seen, list []string) string {
	var b strings.Builder
	if bare.code != wrapped.code || bare.stdout != wrapped.stdout || bare.stderr != wrapped.stderr {
		fmt.Fprintf(&b, "bare: status %d, %q, %q\nwrapped: status %d, %q, %q\n",
			bare.code, bare.stdout, bare.stderr, wrapped.code, wrapped.stdout, wrapped.stderr)
	}
	all := maps.Clone(bare.keys)
	maps.Copy(all, wrapped.keys)
	for key := range all {
		if bare.keys[key] != wrapped.keys[key] && !slices.ContainsFunc(list, func(l string) bool { return torchtest.Matches(l, key) }) {
			fmt.Fprintf(&b, "%s: bare %q, wrapped %q\n", key, bare.keys[key], wrapped.keys[key])
		}
	}
	return b.String()
}

// place holds the probe in every form it can be started in.
type place struct {
	dir   string
	probe []byte
}

func newPlace(t testing.TB) place {
	t.Helper()
	src, err := os.ReadFile("testdata/probe.py")
	wardentest.NoError(t, err)
	p := place{t.TempDir(), src}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("__main__.py")
	if err == nil {
		_, err = w.Write(src)
	}
	err = errors.Join(err, z.Close(),
		os.WriteFile(filepath.Join(p.dir, "probe.py"), src, 0o600),
		os.WriteFile(filepath.Join(p.dir, "probe.pyz"), zipped.Bytes(), 0o600),
		os.Mkdir(filepath.Join(p.dir, "cwd"), 0o700))
	wardentest.NoError(t, err)
	return p
}

// run starts a Python and reads what the probe told; one that ended before the
// probe did told nothing.
func (p place) run(t testing.TB, py string, env []string, args ...string) seen {
	t.Helper()
	out := filepath.Join(p.dir, "seen")
	cmd := exec.Command(py)
	for _, a := range args {
		if a == "-" {
			cmd.Stdin = bytes.NewReader(p.probe)
		}
		cmd.Args = append(cmd.Args, strings.NewReplacer("@out", out, "@dir", p.dir).Replace(a))
	}
	cmd.Env, cmd.Dir = env, filepath.Join(p.dir, "cwd")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	s := seen{map[string]string{}, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	text, err := os.ReadFile(out)
	if err != nil {
		return s
	}
	os.Remove(out)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		s.keys[key] += value + ";"
	}
	return s
}

// same runs a Python bare and under the hook, and compares what the probe told.
func (p place) same(t testing.TB, name, py string, env, list []string, args ...string) (bare, wrapped seen) {
	t.Helper()
	hooked, hookDir := underHook(t, env)
	bare, wrapped = p.run(t, py, env, args...), p.run(t, py, hooked, args...)
	if d := differences(bare, wrapped, list); d != "" {
		t.Errorf("%s %q:\n%s", name, args, d)
	}
	// It holds every file it held, and no other: nothing was compiled.
	if err := checkHook(hookDir); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return bare, wrapped
}

// way is one way to start a Python.
type way struct {
	name string
	args string // @out: where the probe writes, @dir: where it lies
	env  string
	min  [2]int // least version
	one  bool   // tried with one Python, and with all where RSSWARDEN_ENDURANCE is set
	site bool   // site is not run
}

var ways = []way{
	{name: "script", args: "@dir/probe.py @out"},
	{name: "-c", args: `-c import-probe @out`},
	{name: "-m", args: "-m probe @out", env: "PYTHONPATH=@dir"},
	{name: "zipapp", args: "@dir/probe.pyz @out"},
	{name: "stdin", one: true, args: "- @out"},
	{name: "-S", args: "-S @dir/probe.py @out", site: true},
	{name: "-E", args: "-E @dir/probe.py @out"},
	{name: "-s", one: true, args: "-s @dir/probe.py @out"},
	{name: "-I", one: true, args: "-I @dir/probe.py @out", min: [2]int{3, 4}},
	{name: "-B", one: true, args: "-B @dir/probe.py @out"},
	{name: "-bb -W error", args: "-bb -W error @dir/probe.py @out"},
	{name: "-OO", one: true, args: "-OO @dir/probe.py @out"},
	{name: "-X dev", args: "-X dev @dir/probe.py @out", min: [2]int{3, 7}},
	{name: "-X utf8", one: true, args: "-X utf8 @dir/probe.py @out", min: [2]int{3, 7}},
	{name: "no bytecode", one: true, args: "@dir/probe.py @out", env: "PYTHONDONTWRITEBYTECODE=1"},
	{name: "safe path", one: true, args: "@dir/probe.py @out", env: "PYTHONSAFEPATH=1"},
	{name: "no user site", one: true, args: "@dir/probe.py @out", env: "PYTHONNOUSERSITE=1"},
	{name: "path with a colon behind", args: "@dir/probe.py @out", env: "PYTHONPATH=@dir:"},
	{name: "path with a colon before", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=:@dir"},
	{name: "path of a colon", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=:"},
	{name: "empty path", args: "@dir/probe.py @out", env: "PYTHONPATH="},
	{name: "relative path", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=../cwd:.:no/such"},
	{name: "missing directory", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=/no/such:@dir"},
	{name: "a file on the path", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=@dir/probe.pyz:@dir/probe.py"},
	{name: "no such script", one: true, args: "@dir/none.py"},
	{name: "no such module", one: true, args: "-m no_such_module"},
	{name: "a script that does not parse", one: true, args: "-c 1+"},
	{name: "unbuffered, hash seed", one: true, args: "-u @dir/probe.py @out", env: "PYTHONHASHSEED=0"},
	{name: "C locale", one: true, args: "@dir/probe.py @out", env: "LC_ALL=C"},
}

// TestInertInEveryPython: no Python of the job tells that it runs under the
// hook, but for what inert.md lists.
func TestInertInEveryPython(t *testing.T) {
	t.Parallel()
	all := torchtest.Interpreters(t, anyPython)
	start, noSite := torchtest.Inert(t, "From the start"), torchtest.Inert(t, "site is not run")
	for n, py := range all {
		t.Run(py.Name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			for _, w := range ways {
				if n > 0 && w.one && wardentest.Few(1, 0) == 0 || !py.AtLeast(w.min[0], w.min[1]) {
					continue
				}
				env := cleanEnv()
				if w.env != "" {
					env = append(env, strings.ReplaceAll(w.env, "@dir", p.dir))
				}
				args := strings.Fields(w.args)
				for i, a := range args {
					if a == "import-probe" {
						args[i] = "exec(open(r'" + p.dir + "/probe.py').read())"
					}
				}
				list := start
				switch {
				case w.site:
					list = noSite
				case py.Major == 2 && w.env == "PYTHONPATH=":
					list = append(torchtest.Inert(t, "set and empty"), start...)
				}
				_, wrapped := p.same(t, w.name, py.Path, env, list, args...)
				if !w.site && len(wrapped.keys) > 0 {
					read := w.args[:2] != "-E" && w.args[:2] != "-I"
					armed := strings.Contains(wrapped.keys["sys.meta_path"], "'Finder'")
					if want := read && py.Armed(); armed != want {
						t.Errorf("%s: armed %v, want %v: %s", w.name, armed, want, wrapped.keys["sys.meta_path"])
					}
				}
			}
		})
	}
	t.Logf("%d interpreters: %v", len(all), all)
}

// underHook is env as the command of a run has it.
func underHook(t testing.TB, env []string) (hooked []string, hookDir string) {
	t.Helper()
	p := prepare(t, atHome(t, env))
	// The places were for us alone.
	hooked = slices.Clone(env)
	for _, key := range []string{EnvDir, "PYTHONPATH"} {
		hooked = setEnv(hooked, key, getEnv(p.Env, key))
	}
	return hooked, p.Hook
}

// usual are those that are tried with every Python, on PYTHONPATH; the others with two, and
// all with all where RSSWARDEN_ENDURANCE is set.
var usual = map[string]bool{"sets": true, "raises": true}

// TestOtherSiteCustomize: another sitecustomize or usercustomize, one of testdata/sites, runs
// as without us, wherever it is.
func TestOtherSiteCustomize(t *testing.T) {
	t.Parallel()
	all := torchtest.Interpreters(t, anyPython)
	list := torchtest.Inert(t, "From the start")
	sites, err := filepath.Glob("testdata/sites/*.py")
	wardentest.NoError(t, err)
	stepsOn, err := os.ReadFile("testdata/sites/steps_on.py")
	wardentest.NoError(t, err)
	for n, py := range all {
		t.Run(py.Name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			base := filepath.Join(p.dir, "user")
			userSite := py.Run(t, append(cleanEnv(), "PYTHONUSERBASE="+base), "-c", "import site; print(site.getusersitepackages())")
			for where, dir := range map[string]string{
				"PYTHONPATH": filepath.Join(p.dir, "mine"), "user site": strings.TrimSpace(userSite),
			} {
				wardentest.NoError(t, os.MkdirAll(dir, 0o700))
				for _, site := range sites {
					what := strings.TrimSuffix(filepath.Base(site), ".py")
					body, err := os.ReadFile(site)
					wardentest.NoError(t, err)
					if n > 0 && py.Major == 3 && (!usual[what] || where != "PYTHONPATH") && wardentest.Few(1, 0) == 0 {
						continue
					}
					name := "sitecustomize.py"
					env := append(cleanEnv(), "PYTHONPATH="+dir)
					if where == "user site" {
						name = "usercustomize.py"
						env = append(cleanEnv(), "PYTHONUSERBASE="+base)
						if what == "steps_on" {
							continue
						}
					}
					wardentest.NoError(t, os.WriteFile(filepath.Join(dir, name), body, 0o600))
					hooked, hookDir := underHook(t, env)
					args := []string{"-B", "@dir/probe.py", "@out"} // it is changed within a second
					bare, wrapped := p.run(t, py.Path, env, args...), p.run(t, py.Path, hooked, args...)
					if what == "exits" {
						// Python ends with a traceback of its start, which has lines of ours.
						bare.stderr, wrapped.stderr = "", ""
					}
					if d := differences(bare, wrapped, list); d != "" {
						t.Errorf("%s, %s:\n%s", where, what, d)
					}
					if err := checkHook(hookDir); err != nil {
						t.Error(err)
					}
				}
				os.RemoveAll(dir)
			}
			// One that comes before ours, as where a program is started by
			// such another within the run.
			mine := filepath.Join(p.dir, "mine")
			wardentest.NoError(t, errors.Join(os.Mkdir(mine, 0o700), os.WriteFile(filepath.Join(mine, "sitecustomize.py"), stepsOn, 0o600)))
			env := append(cleanEnv(), "PYTHONPATH="+mine)
			hooked, hookDir := underHook(t, cleanEnv())
			hooked = setEnv(hooked, "PYTHONPATH", mine+":"+hookDir)
			bare, wrapped := p.run(t, py.Path, env, "@dir/probe.py", "@out"), p.run(t, py.Path, hooked, "@dir/probe.py", "@out")
			if d := differences(bare, wrapped, list); d != "" {
				t.Errorf("before ours:\n%s", d)
			}
		})
	}
}

// TestPrefixes: a venv, and an installation of its own as conda makes them, each
// with its own sitecustomize, and PYTHONHOME.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	all := torchtest.Interpreters(t, anyPython)
	list := torchtest.Inert(t, "From the start")
	made := 0
	for n, py := range all {
		if !py.AtLeast(3, 8) || strings.HasPrefix(py.Name, "pypy") {
			continue
		}
		if made++; n > 0 && made > 2 && wardentest.Few(1, 0) == 0 {
			continue // two will do
		}
		t.Run(py.Name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			same := func(name, exe string, env []string) {
				t.Helper()
				for _, args := range [][]string{{"@dir/probe.py", "@out"}, {"-I", "@dir/probe.py", "@out"}} {
					bare, _ := p.same(t, name, exe, env, list, args...)
					if len(bare.keys) == 0 || args[0] != "-I" && !strings.Contains(bare.keys["sys.prefix"], p.dir) {
						t.Fatalf("%s: %+v", name, bare)
					}
				}
			}
			own := func(prefix string) {
				t.Helper()
				found, _ := filepath.Glob(filepath.Join(prefix, "lib/python3*/site-packages"))
				if len(found) != 1 {
					t.Fatalf("%q in %s", found, prefix)
				}
				body := "import sys\nsys.mark = 1\nprint('own', __file__)\n"
				wardentest.NoError(t, os.WriteFile(filepath.Join(found[0], "sitecustomize.py"), []byte(body), 0o600))
			}
			for _, options := range []string{"", "--system-site-packages", "--copies"}[:wardentest.Few(3, 2)] {
				venv := filepath.Join(p.dir, "venv"+options)
				cmd := exec.Command(py.Path, append(append([]string{"-m", "venv", "--without-pip"}, strings.Fields(options)...), venv)...)
				cmd.Env = cleanEnv()
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("no venv: %s", out)
				}
				exe := filepath.Join(venv, "bin/python")
				same("venv "+options, exe, cleanEnv())
				own(venv)
				same("venv with its own "+options, exe, cleanEnv())
			}
			prefix := condaLike(t, py, filepath.Join(p.dir, "prefix"))
			exe := filepath.Join(prefix, "bin/python")
			same("prefix", exe, cleanEnv())
			same("PYTHONHOME", py.Path, append(cleanEnv(), "PYTHONHOME="+prefix))
			own(prefix)
			same("prefix with its own", exe, cleanEnv())
		})
	}
	if made == 0 {
		t.Skip("no Python 3 here")
	}
}

// condaLike makes an installation with a standard library and site-packages of
// its own at prefix.
func condaLike(t testing.TB, py torchtest.Interpreter, prefix string) string {
	t.Helper()
	const ask = "import sys, sysconfig, os; print(os.path.realpath(sys.executable)); print(sysconfig.get_paths()['stdlib'])"
	cmd := exec.Command(py.Path, "-I", "-c", ask)
	cmd.Env = cleanEnv()
	out, err := cmd.Output()
	wardentest.NoError(t, err)
	exe, stdlib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	lib := filepath.Join(prefix, "lib", filepath.Base(stdlib))
	bin, err := os.ReadFile(exe)
	err = errors.Join(err, os.MkdirAll(filepath.Join(lib, "site-packages"), 0o700), os.MkdirAll(filepath.Join(prefix, "bin"), 0o700),
		os.WriteFile(filepath.Join(prefix, "bin/python"), bin, 0o700))
	wardentest.NoError(t, err)
	entries, err := os.ReadDir(stdlib)
	wardentest.NoError(t, err)
	for _, e := range entries {
		switch e.Name() {
		case "site-packages", "dist-packages", "sitecustomize.py", "__pycache__":
			continue
		}
		wardentest.NoError(t, os.Symlink(filepath.Join(stdlib, e.Name()), filepath.Join(lib, e.Name())))
	}
	return prefix
}

// fault is something that goes wrong in a function of the hook.
type fault struct {
	kind string // raise, raise:STATEMENT or slow
	in   string // MODULE.FUNCTION of package _rsswarden
}

// oftenFaults are those of `make test`: they lie where a training has most to lose.
var oftenFaults = []fault{
	{"raise", "iterators.made"}, {"raise", "recycle.Recycler._take_over"}, {"raise", "birth.start"}, {"slow", "recycle.Recycler._tell"},
}

// bornOff are functions that fail before there is a training to report.
var bornOff = []string{"__init__.begin", "patch.install", "channel.meant", "channel._read", "channel.start_time",
	"channel.Side.__init__", "channel.Side.hello"}

// ownProcess runs in a replacement alone, before anything of the program's is
// reached. Such a process says what it met and ends, as one that cannot be started.
const ownProcess = "birth._born"

// onlyInjected says that a program printed nothing but the fault, as Python
// prints what ends a process.
func onlyInjected(stderr string, f fault) bool {
	processes := strings.Count(stderr, "Process Process-")
	return processes > 0 && processes == strings.Count(stderr, "Traceback (most recent call last):") &&
		processes == strings.Count(stderr, "ZeroDivisionError: injected into "+f.in+"\n")
}

// TestHookFails has functions of the hook raise, or be slow for 5 s: the
// training goes on, its data are right, and it ends as it would. With
// RSSWARDEN_ENDURANCE it is each function, on each torch, and before each of
// its statements where recycling may be left half done.
func TestHookFails(t *testing.T) {
	t.Parallel()
	for _, s := range stands {
		t.Run(s.Name, func(t *testing.T) {
			s.Need(t)
			for i, f := range faultsOf(t) {
				if s.Turn(i) {
					t.Run(f.kind+"/"+f.in, func(t *testing.T) {
						t.Parallel()
						runFault(t, s, f)
					})
				}
			}
		})
	}
}

// put makes a hook that has the fault.
func (f fault) put(t *testing.T) func(dir string) string {
	return func(dir string) string {
		changed := filepath.Join(t.TempDir(), "hook")
		torchtest.Run(t, nil, "testdata/fault.py", f.kind, dir, changed, f.in)
		return changed
	}
}

// hookFunctions are the functions of the hook, with how many statements each has.
func hookFunctions(t *testing.T) iter.Seq2[string, int] {
	t.Helper()
	list := torchtest.Run(t, nil, "testdata/fault.py", "list", "hook")
	return func(yield func(string, int) bool) {
		for line := range strings.Lines(list) {
			name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			if statements, _ := strconv.Atoi(n); !yield(name, statements) {
				return
			}
		}
	}
}

// faultsOf lists the faults to try.
func faultsOf(t *testing.T) []fault {
	t.Helper()
	if wardentest.Few(1, 0) == 0 {
		return oftenFaults
	}
	var list []fault
	for name, statements := range hookFunctions(t) {
		if strings.HasPrefix(name, "stateful.") {
			continue // see TestStatefulHookFails
		}
		list = append(list, fault{"raise", name}, fault{"slow", name})
		for _, prefix := range []string{"recycle.Recycler._take_over", "recycle.Recycler._tell", "recycle.Recycler._drain",
			"recycle.Recycler._refill", "recycle.Recycler._begin", "recycle.Recycler.reap", "epoch.settle", "epoch.reopen", "epoch.Ending.__init__"} {
			for k := 1; name == prefix && k < statements; k++ {
				list = append(list, fault{fmt.Sprintf("raise:%d", k), name})
			}
		}
	}
	return list
}

// brief are the options of a short training.
const brief = "--part 400 --epochs 2"

// runFault runs a training with the fault.
func runFault(t *testing.T, s *stand, f fault) {
	want := bareOn(t, s, brief)
	tr := train(t, trainOptions{on: s, args: brief + " --workers 2", hook: f.put(t)})
	var asked []uint64
	for n, mode := range []event.Mode{event.Swap, event.Drain} {
		tr.moreEpochs(1)
		wardentest.NoError(t, tr.ctl.SetBudget(rss.Bytes(n+1)))
		if pids := tr.workers(); len(pids) == 2 {
			// Some faults leave no process to ask.
			tr.ctl.Trim()
			tr.ctl.GC()
			if id, err := tr.ctl.Recycle(pids[n], mode); err == nil {
				asked = append(asked, id)
			}
		}
	}
	tr.moreEpochs(2)
	r := tr.finish()
	if r.Wrong != 0 || r.Checksum != want.Checksum || r.Main != want.Main && r.Epochs == want.Epochs {
		t.Errorf("got %+v, bare %+v", r, want)
	}
	if text := tr.stderr.String(); text != "" && !(f.kind == "raise" && f.in == ownProcess && onlyInjected(text, f)) {
		t.Errorf("stderr: %s", text)
	}
	hit, off := tr.reached(), false
	for _, said := range tr.said {
		if said.What == event.LoaderRefused && f.in == "birth.start" && strings.Contains(said.Reason, "injected into "+f.in) {
			off = true // as far as recycling goes
		}
		if said.What != event.LoaderOff {
			continue
		}
		off = true
		if f.kind == "slow" || !strings.Contains(said.Reason, "injected into "+f.in) {
			t.Errorf("off: %s", said.Reason)
		}
	}
	if f.kind == "raise" && slices.ContainsFunc(oftenFaults, func(o fault) bool { return o == f }) && (!hit || !off) {
		t.Errorf("got there: %t; that the hook is off was said: %t: %+v", hit, off, tr.said)
	}
	if f.kind == "slow" && !off && !slices.Contains(bornOff, f.in) {
		for _, id := range asked {
			if said, ok := tr.last(id); !ok {
				t.Errorf("request %d was not answered: %+v", id, tr.said)
			} else if said.What != event.LoaderRecycled {
				t.Logf("%s: %+v", f.in, said)
			}
		}
	}
	t.Logf("a process got there: %v", hit)
}

// reached says whether a process of the training got to the fault.
func (tr *training) reached() bool {
	_, err := os.Stat(strings.TrimSuffix(tr.stop, "stop") + "started.reached")
	return err == nil
}

// TestGarbage writes garbage into the files that the hook reads, and replaces those it
// writes by something unwritable.
func TestGarbage(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		start := func(t *testing.T) (*training, rss.ProcID) {
			tr := train(t, trainOptions{on: s, args: brief + " --workers 2"})
			tr.have(2)
			return tr, tr.ctl.Trainers()[0].ID
		}
		end := func(t *testing.T, tr *training) { tr.like(bareOn(t, s, brief)) }
		if s.Turn(0) {
			t.Run("control file", func(t *testing.T) {
				t.Parallel()
				tr, id := start(t)
				path := filepath.Join(tr.dir, nodedir.FileOf("ctl", id))
				for _, garbage := range [][]byte{
					nil, []byte("{"), []byte("[]"), []byte("null"), []byte(`{"v":1}`), []byte(`{"v":2,"budget":0}`),
					[]byte(`{"v":1,"budget":"many","trim":7,"recycle":{}}`), []byte(`{"v":1,"budget":1e400,"trim":[],"recycle":[]}`),
					[]byte(`{"v":1,"budget":-5,"trim":[{"id":1,"pids":[null]}],"recycle":[{"id":9,"worker":1,"mode":"melt"}]}`),
					[]byte(`{"v":1,"budget":0,"trim":[],"recycle":[],"gc":[{"id":"x","pids":3}],"trim_private":[]}`),
					bytes.Repeat([]byte("["), 60000), bytes.Repeat([]byte{0xff}, 200000),
				} {
					wardentest.NoError(t, replaceFile(path, garbage))
					tr.moreEpochs(1)
				}
				// It still listens.
				tr.recycle(1, event.Swap)
				end(t, tr)
			})
		}
		for i, c := range []struct {
			name string
			make func(path string) error
		}{
			{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
			{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
			{"a link", func(path string) error { return os.Symlink("/proc/self/mem", path) }},
			{"full", func(path string) error { return os.Symlink("/dev/full", path) }},
		} {
			for j, kind := range []string{"log", "ctl"} {
				if !s.Turn(2*i+j) || (i != 3 || j != 0) && wardentest.Few(1, 0) == 0 {
					continue
				}
				t.Run(kind+" is "+c.name, func(t *testing.T) {
					t.Parallel()
					tr, id := start(t)
					path := filepath.Join(tr.dir, nodedir.FileOf(kind, id))
					pids := tr.workers()
					wardentest.NoError(t, os.RemoveAll(path))
					wardentest.NoError(t, c.make(path))
					if kind == "log" {
						// It is asked, and cannot answer.
						for n, mode := range []event.Mode{event.Swap, event.Drain} {
							if _, err := tr.ctl.Recycle(pids[n], mode); err != nil {
								t.Fatal(err)
							}
						}
					}
					tr.moreEpochs(2)
					end(t, tr)
				})
			}
		}
	})
}
