package main_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// silent is a job whose processes never say hello to the hook.
type silent struct {
	stand
	script func(wrap string) string
	want   string   // its checksum
	args   []string // of sbatch, with a limit that kills it bare
}

// isolated is the trainer under python3 -I, which reads neither PYTHONPATH nor
// anything else that could bring the hook in. It computes for 20 ms a batch, as the
// compiled one has a pace. Without that it is the machine's speed that is tested: a fault
// maps the pages around it too, so that at 5 ms a batch workers that read 0.8 GB a second
// map 7, all that is left below the limit in a quarter of a second, and a poll of slurmstepd
// may come between a look and the end of its trim.
func isolated(t *testing.T, shape string) silent {
	s := trainStand(t, slurmtest.Linux)
	options := []string{shape, "--workers", "4", "--epochs", "1", "--step-ms", "20"}
	run := fmt.Sprintf(`import sys, runpy; sys.path.insert(0, %q); runpy.run_path(%q, run_name="__main__")`, filepath.Dir(s.train), s.train)
	return silent{
		stand: s, want: s.reference(t, options...), args: []string{"--mem=2600"},
		script: func(wrap string) string {
			return fmt.Sprintf("exec %s %s -I -c '%s' %s %s", wrap, python, run, strings.Join(s.records, " "), strings.Join(options, " "))
		},
	}
}

// compiled is the loader of examples/lmdbload, which knows no Python.
func compiled(t *testing.T) silent {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{CPUs: 4, RealMemory: 20000})
	s := stand{Cluster: c, rsswarden: c.Install(t, binary)}
	load := filepath.Join(t.TempDir(), "lmdbload")
	if out, err := exec.Command("go", "build", "-o", load, "../../examples/lmdbload").CombinedOutput(); err != nil {
		t.Fatalf("cannot build lmdbload: %v\n%s", err, out)
	}
	load = c.Install(t, load)
	line := load + " -data " + filepath.Join(c.Dir(), "load.lmdb") + " -records 1000 -workers 4 -epochs 6 -growth 700"
	made := strings.Fields(line)
	if got := c.Do(t, made[0], append(made[1:], "-create")...); got.Code != 0 {
		t.Fatalf("cannot make the data: %+v", got)
	}
	got := c.Do(t, made[0], made[1:]...)
	if got.Code != 0 || checksum(got.Stdout) == "none" {
		t.Fatalf("the run without a limit failed: %+v", got)
	}
	return silent{
		stand: s, want: checksum(got.Stdout), args: []string{"--mem=2000"},
		script: func(wrap string) string { return "exec " + wrap + " " + line },
	}
}

func (s silent) wrapped(options string) string {
	return s.script(s.rsswarden + " run --trim ptrace " + options + " --")
}

// TestSlurmPtrace: slurmstepd kills these jobs, and nothing in them can be asked
// to give pages back.
func TestSlurmPtrace(t *testing.T) {
	for name, build := range map[string]func(*testing.T) silent{
		"python -I, persistent": func(t *testing.T) silent { return isolated(t, "--persistent") },
		"python -I, endless":    func(t *testing.T) silent { return isolated(t, "--endless") },
		"lmdbload":              compiled,
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t)
			if bare := s.Submit(t, s.script(""), s.args...).Wait(t); bare.State != "FAILED" || bare.Signal != 9 {
				t.Errorf("bare: %s %d:%d, want FAILED 0:9: the test proves nothing", bare.State, bare.ExitCode, bare.Signal)
			}
			list := filepath.Join(s.Dir(), "events-"+strings.ReplaceAll(t.Name(), "/", "-"))
			s.carried(t, s.want, s.wrapped("--events "+list), s.args...)
			traced := 0
			for _, e := range events(t, list)[event.NameLoader] {
				if e["what"] == string(event.LoaderTrimmed) {
					if e["by"] != "ptrace" {
						t.Errorf("not by ptrace: %v", e)
					}
					traced++
				}
			}
			if traced == 0 {
				t.Error("nothing was trimmed: the test proves nothing")
			}
		})
	}
}
