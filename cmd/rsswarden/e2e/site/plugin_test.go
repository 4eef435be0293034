// Package site runs jobs of users who typed nothing: the SPANK plugin wraps their tasks.
package site

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}, slurmtest.Shutdown))
}

// site is a cluster with the plugin.
type site struct {
	*slurmtest.Cluster
	bin string // rsswarden, with the link rsswarden-task beside it
	so  string // the plugin
}

// options of a cluster whose salloc starts its shell as a step, and which takes more tasks than
// 512, Slurm's own limit.
var options = slurmtest.Options{Nodes: 2, CPUs: 32, RealMemory: 45000, Conf: "LaunchParameters=use_interactive_step\nMaxTasksPerNode=2000"}

// newSite starts a Slurm of this machine's, or of a suite, with the plugin built for it. No
// step is too small to be wrapped.
func newSite(t *testing.T, suite debian.Suite) *site {
	t.Helper()
	o := options
	o.Suite = suite
	s := &site{Cluster: slurmtest.Start(t, slurmtest.Linux, o)}
	s.bin = s.Install(t, binary)
	if err := os.Symlink("rsswarden", s.bin+"-task"); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	s.so = filepath.Join(filepath.Dir(s.Conf()), "rsswarden_spank.so")
	build(t, suite, s.so)
	s.plugstack(t, "optional "+s.so+" bin="+s.bin+" minmem=0")
	t.Cleanup(func() { s.plugstack(t, "") }) // the cluster is that of the next test, too
	return s
}

// build compiles the plugin for the Slurm of a suite.
func build(t *testing.T, suite debian.Suite, to string) {
	t.Helper()
	include := "/usr/include"
	if suite != "" { // without what else its root may have there, which is not for this machine's compiler
		include = t.TempDir()
		wardentest.NoError(t, os.Symlink(debian.Need(t, suite).Path("/usr/include/slurm"), include+"/slurm"))
	}
	if _, err := os.Stat(include + "/slurm/spank.h"); err != nil {
		t.Skip("needs the headers of Slurm: ", err)
	}
	if _, errs, err := wardentest.Output("make", "-s", "-C", "../../../..", "plugin", "SLURM_INCLUDE="+include, "PLUGIN="+to); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
}

// plugstack writes plugstack.conf, which each command and step of Slurm reads again.
func (s *site) plugstack(t *testing.T, line string) {
	t.Helper()
	wardentest.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(s.Conf()), "plugstack.conf"), []byte(line+"\n"), 0o644))
}

// parent says who started the shell that reads it.
const parent = `read parent </proc/$PPID/comm; echo "by $parent"`

// by splits the lines "by NAME" off a text.
func by(text string) (names []string, rest string) {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "by "); ok {
			names = append(names, strings.TrimSpace(name))
		} else {
			rest += line
		}
	}
	return names, rest
}

// wrapped says that all of some tasks, and at least one, were started by rsswarden.
func wrapped(names []string) bool {
	for _, name := range names {
		if name != "rsswarden" {
			return false
		}
	}
	return len(names) > 0
}

// equal runs a command with and without rsswarden, and wants the same of both.
func (s *site) equal(t *testing.T, tasks int, args ...string) {
	t.Helper()
	with := s.Srun(t, append([]string{"--mem=200", "--rsswarden=on"}, args...)...)
	bare := s.Srun(t, append([]string{"--mem=200", "--rsswarden=off"}, args...)...)
	names, out := by(with.Stdout)
	bareNames, bareOut := by(bare.Stdout)
	if len(bareNames) != len(names) || wrapped(bareNames) || wrapped(names) != (tasks > 0) || tasks > 0 && len(names) != tasks {
		t.Errorf("children of %q, bare of %q, want %d wrapped", names, bareNames, tasks)
	}
	if errs := unnumbered(with.Stderr); out != bareOut || with.Code != bare.Code || errs != unnumbered(bare.Stderr) {
		t.Errorf("status %d\n%s%s\nbare %d\n%s%s", with.Code, out, with.Stderr, bare.Code, bareOut, bare.Stderr)
	}
}

// unnumbered is what srun and slurmstepd say, without what differs between two steps.
func unnumbered(errs string) string {
	var rest []string
	for line := range strings.Lines(errs) {
		// The last is about a task that ends before srun has its connection.
		if !strings.Contains(line, "queued and waiting") && !strings.Contains(line, "has been allocated") && !strings.Contains(line, "you told me node") {
			line = strings.ReplaceAll(line, " (core dumped)", "") // the holder leaves no core
			rest = append(rest, differs.ReplaceAllString(line, ""))
		}
	}
	slices.Sort(rest)
	return strings.Join(rest, "")
}

// differs are times, nodes and numbers of jobs.
var differs = regexp.MustCompile(`\[?[0-9-]+T[0-9:.]+\]?|\brw\w+|[0-9]+\.[0-9]+`)

func TestPlugin(t *testing.T) {
	s := newSite(t, "")
	s.table(t, "", false)
}

// TestPluginSid has what differs between releases of Slurm, how a command is replaced, and all of
// the table in the long run.
func TestPluginSid(t *testing.T) {
	s := newSite(t, debian.Sid)
	s.table(t, debian.Sid, wardentest.Few(0, 1) == 1)
}

func (s *site) table(t *testing.T, suite debian.Suite, short bool) {
	t.Run("same as bare", func(t *testing.T) { s.rows(t, suite, short) })
	if !short {
		t.Run("jobs", s.jobs)
		t.Run("terminal", s.terminals)
	}
	t.Run("container", s.container)
	t.Run("left bare", func(t *testing.T) { s.leftBare(t, suite) })
}

// rows are steps that see and do what they would without the plugin.
func (s *site) rows(t *testing.T, suite debian.Suite, short bool) {
	prolog := s.Install(t, "testdata/prolog.sh")
	told := s.Install(t, "testdata/parent.sh")
	copies := filepath.Join(s.Dir(), "copies")
	wardentest.NoError(t, os.MkdirAll(copies, 0o755))
	wardentest.NoError(t, os.Chown(copies, s.UID(), 0))
	pmi, pmix := s.Install(t, "testdata/pmi.py"), s.Install(t, "testdata/pmix.py")
	multi := filepath.Join(s.Dir(), "multi.conf")
	wardentest.NoError(t, os.WriteFile(multi, []byte("0-1 sh -c '"+parent+"; echo task'\n"), 0o644))
	plain := filepath.Join(s.Dir(), "not-executable")
	wardentest.NoError(t, os.WriteFile(plain, nil, 0o644))
	sh := func(script string, args ...string) []string { return append([]string{"sh", "-c", script}, args...) }
	for _, row := range []struct {
		name  string
		tasks int // that are wrapped
		all   bool
		args  []string
	}{
		{"arguments", 1, true, sh(parent+`; for a in "$0" "$@"; do echo "[$a]"; done`, "zero", "two words", "", "--", "-n5", `"`)},
		{"status", 1, true, sh(parent + "; echo said >&2; exit 7")},
		{"signal", 0, true, sh("kill -TERM $$")}, // what it has written before may be lost
		{"fault", 0, false, sh("ulimit -c 0; kill -SEGV $$")},
		{"input", 1, true, sh(parent + "; cat; wc -c </dev/null")},
		{"process", 1, false, sh(parent + "; ulimit -a; ulimit -Ha; umask; pwd; grep -E '^Sig(Blk|Ign)' /proc/self/status; echo $TMPDIR")},
		{"environment", 1, true, sh(parent + "; env | grep -v -e ^RSSWARDEN_DIR= -e ^PYTHONPATH= | cut -d= -f1 | sort")},
		{"task prolog", 1, true, append([]string{"--task-prolog=" + prolog}, sh(parent+`; echo "$FROM_PROLOG"`)...)},
		{"two nodes", 4, false, append([]string{"-N2", "-n4"}, sh(parent+"; echo task")...)},
		{"PMI", 2, false, []string{"-N2", "-n2", "--mpi=pmi2", wardentest.Python, pmi}},
		{"PMIx", 2, false, []string{"-N1", "-n2", "--mpi=pmix", wardentest.Python, pmix}}, // two nodes of one host break it
		{"broadcast file", 1, true, []string{"--bcast=" + filepath.Join(s.Dir(), "copy"), told}},
		{"broadcast directory", 0, true, []string{"--bcast=" + copies + "/", told}},
		{"not found", 0, true, []string{"no-such-command"}},
		{"not executable", 0, false, []string{plain}},
		{"multi-prog", 0, true, []string{"-n2", "--multi-prog", multi}},
	} {
		if short && !row.all {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			if paths, _ := filepath.Glob("/usr/lib/*/pmix2/lib/libpmix.so"); row.name == "PMIx" && (paths == nil || suite != "") {
				t.Skip("needs libpmix-dev, and a Slurm with PMIx, which Debian sid's lacks")
			}
			t.Parallel()
			s.equal(t, row.tasks, row.args...)
		})
	}
}

// script prints who started the shell of a job, and then those of its steps.
const script = parent + `; srun --mem=0 sh -c '` + parent + `'`

// jobs are batch jobs, and steps within them.
func (s *site) jobs(t *testing.T) {
	const python = "#!/usr/bin/python3\nimport os\nprint('by', open(f'/proc/{os.getppid()}/comm').read().strip())\n"
	for _, row := range []struct {
		name, script string
		by           string
		args         []string
	}{
		{"batch and step", script, "rsswarden rsswarden", nil},
		{"off in the script", "#!/bin/bash\n#SBATCH --rsswarden=off\n" + script, "slurmstepd slurmstepd", nil},
		{"on again for a step", "#!/bin/bash\n#SBATCH --rsswarden=off\n" + strings.Replace(script, "srun", "srun --rsswarden=on", 1), "slurmstepd rsswarden", nil},
		{"python", python, "rsswarden", nil},
		{"array", "#!/bin/bash\n" + parent, "rsswarden", []string{"--array=4"}},
		{"unset", "#!/bin/bash\n" + parent + "; exec env -i sh -c 'echo unset'", "rsswarden", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := s.Submit(t, row.script, append([]string{"--mem=300"}, row.args...)...).Wait(t)
			if names, _ := by(got.Stdout); got.State != "COMPLETED" || strings.Join(names, " ") != row.by || got.Stderr != "" {
				t.Errorf("%s, children of %q\n%s%s", got.State, names, got.Stdout, got.Stderr)
			}
		})
	}
	t.Run("mpirun", func(t *testing.T) {
		if _, err := exec.LookPath("mpirun"); err != nil {
			t.Skip("needs Open MPI")
		}
		t.Parallel()
		// Its daemons are a step of srun.
		rank := "sh -c 'read parent </proc/$PPID/comm; read daemon </proc/$(cut -d\" \" -f4 /proc/$PPID/stat)/comm; echo $parent by $daemon'"
		got := s.Submit(t, "mpirun --oversubscribe -n 2 --map-by node "+rank+" | sort", "-N2", "-n2", "--mem=300").Wait(t)
		ours := strings.ReplaceAll(got.Stdout, "prted by", "orted by") // of Open MPI 5 and newer
		if got.State != "COMPLETED" || ours != strings.Repeat("orted by rsswarden\n", 2) {
			t.Errorf("%s\n%s%s", got.State, got.Stdout, got.Stderr)
		}
	})
	for mode, want := range map[string]string{"on": "by rsswarden\n", "off": "by slurmstepd\n"} {
		t.Run("wrap, RSSWARDEN="+mode, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(s.Dir(), "wrap.out."+mode)
			got := s.Do(t, "env", "RSSWARDEN="+mode, "sbatch", "--wait", "--mem=300", "-o", out, "--wrap", script)
			if text := string(wardentest.ReadFile(t, out)); got.Code != 0 || text != want+want {
				t.Errorf("%+v: %s", got, text)
			}
		})
	}
	t.Run("het", func(t *testing.T) {
		t.Parallel()
		one := []string{"--mem=200", "-n1", "sh", "-c", parent}
		got := s.Srun(t, append(append(append([]string{}, one...), ":"), one...)...)
		if names, _ := by(got.Stdout); len(names) != 2 || !wrapped(names) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("signals", func(t *testing.T) {
		t.Parallel()
		for _, mode := range []string{"on", "off"} {
			run := s.Submit(t, `for s in TERM USR1 USR2; do trap "echo $s" $s; done; echo ready; while :; do sleep 0.1; done`, "--mem=200", "--rsswarden="+mode)
			seen := func(text string) func(slurmtest.Result) bool {
				return func(r slurmtest.Result) bool { return r.Over() || strings.Contains(r.Stdout, text) }
			}
			run.Until(t, rsstest.Patience, seen("ready"))
			s.Cancel(t, "-b", "-s", "USR1", run.ID)
			run.Until(t, rsstest.Patience, seen("USR1"))
			s.Cancel(t, "-f", "-s", "USR2", run.ID)
			run.Until(t, rsstest.Patience, seen("USR2"))
			s.Cancel(t, "-b", "-s", "KILL", run.ID)
			if got := run.Wait(t); got.Stdout != "ready\nUSR1\nUSR2\n" || got.Signal != 9 {
				t.Errorf("%s: %s %q %s", mode, got.State, got.Stdout, got.Stderr)
			}
		}
	})
}

// terminals are shells that a person types into.
func (s *site) terminals(t *testing.T) {
	for name, argv := range map[string][]string{"pty": {"srun", "--pty"}, "interactive": {"salloc"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(argv[1:len(argv):len(argv)], "--mem=200")
			if argv[0] == "srun" {
				args = append(args, "bash", "--norc", "--noprofile", "-i")
			}
			ctx, cancel := context.WithTimeout(t.Context(), rsstest.Patience)
			defer cancel()
			on := wardentest.OnTerminal(t, s.Command(ctx, argv[0], args...))
			on.Send("PS1=\"$(printf '%s' rea)dy \"; read parent </proc/$PPID/comm; tty=$(tty); sh -c \"echo by-$parent ${tty%[0-9]*}; exec sleep 1000\"\n")
			on.Await("by-rsswarden /dev/pts/") // said by what the signal is for: a shell that is about to start it may lose it
			on.Send("\x03")
			on.Await("ready")
			on.Send("echo status-$?; exit 5\n")
			if how, shown := on.Ended(); how != "exit 5" || !strings.Contains(shown, "status-130") {
				t.Errorf("%s\n%s", how, shown)
			}
		})
	}
}

// container is a step in a container, of which a runtime gets the command in a file. Nothing of
// ours would be found in there.
func (s *site) container(t *testing.T) {
	bundle := filepath.Join(s.Dir(), "bundle")
	wardentest.NoError(t, os.MkdirAll(bundle+"/rootfs", 0o755))
	wardentest.Write(t, bundle+"/config.json", `{"ociVersion":"1.0.0","process":{"cwd":"/","args":["none"],"env":[]},"root":{"path":"rootfs"},"mounts":[],"linux":{}}`)
	wardentest.Write(t, filepath.Join(filepath.Dir(s.Conf()), "oci.conf"),
		"RunTimeQuery=\"/bin/true\"\nRunTimeRun=\"/bin/cat %b/config.json\"\nRunTimeKill=\"/bin/true\"\nRunTimeDelete=\"/bin/true\"\n")
	got := s.Srun(t, "--mem=200", "--rsswarden=on", "--container="+bundle, "/bin/echo", "inside")
	if got.Code != 0 || !strings.Contains(got.Stdout, `"inside"`) || strings.Contains(got.Stdout, s.bin) {
		t.Errorf("%+v", got)
	}
}

// leftBare are steps that something is missing for, with what the log of slurmd says.
func (s *site) leftBare(t *testing.T, suite debian.Suite) {
	part := filepath.Join(s.Dir(), "part")
	program := wardentest.ReadFile(t, s.bin)
	wardentest.NoError(t, os.WriteFile(part, program[:len(program)/2], 0o755))
	wardentest.NoError(t, os.WriteFile(part+"-task", program[:len(program)/2], 0o755))
	wardentest.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "broken.so"), []byte("no plugin"), 0o755))
	const runs, bare = true, false
	for _, row := range []struct {
		name, line, srun string
		wrapped          bool
		log              string // of slurmd
	}{
		{"off", "default=off", "", bare, ""},
		{"on where off is the default", "default=off", "--rsswarden=on", runs, ""},
		{"steps", "steps=batch", "", bare, ""},
		{"tasks", "maxtasks=1", "-n2", bare, "there are more than maxtasks tasks"},
		{"memory", "minmem=1024", "", bare, "there is less than minmem"},
		{"container", "", "--export=ALL,SLURM_CONTAINER_ID=one", bare, "it is in a container"},
		{"no number", "minmem=much", "", runs, "minmem=much in plugstack.conf is no number"},
		{"option that is not known", "minimum=3", "", runs, "minimum=3 in plugstack.conf is not known"},
		{"missing", "bin=/nowhere/rsswarden", "", bare, "bin=/nowhere/rsswarden is no file that can be executed"},
		{"truncated", "bin=" + part, "", bare, "bin=" + part + " is not a whole ELF program"},
	} {
		said := func() int { return strings.Count(s.Log("slurmd"), row.log) }
		before := said()
		s.plugstack(t, "optional "+s.so+" bin="+s.bin+" minmem=0 "+row.line)
		args := strings.Fields("--mem=200 " + row.srun)
		got := s.Srun(t, append(args, "sh", "-c", parent)...)
		names, rest := by(got.Stdout)
		if got.Code != 0 || len(names) == 0 || wrapped(names) != row.wrapped || rest != "" || got.Stderr != "" {
			t.Errorf("%s: %+v", row.name, got)
		}
		if row.log != "" && said() == before {
			t.Errorf("%s: the log of slurmd has no %q", row.name, row.log)
		}
	}
	other := map[debian.Suite]debian.Suite{"": debian.Sid, debian.Sid: ""}[suite]
	build(t, other, filepath.Join(s.Dir(), "other.so"))
	for _, so := range []string{"broken.so", "other.so", "missing.so"} {
		s.plugstack(t, "optional "+s.Dir()+"/"+so)
		if got := s.Srun(t, "--mem=200", "sh", "-c", parent); got.Code != 0 || got.Stdout != "by slurmstepd\n" {
			t.Errorf("with %s: %+v", so, got)
		}
	}
}
