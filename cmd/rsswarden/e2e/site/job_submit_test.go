package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestJobSubmit: slurmctld runs examples/site/job_submit.lua, by which batch scripts of shells, and
// no others, run under rsswarden.
func TestJobSubmit(t *testing.T) {
	t.Run("22.05", func(t *testing.T) { jobSubmit(t, "") })
	t.Run("sid", func(t *testing.T) { jobSubmit(t, debian.Sid) })
}

func jobSubmit(t *testing.T, suite debian.Suite) {
	o := options
	o.Suite, o.Conf = suite, o.Conf+"\n# with JobSubmitPlugins" // a cluster that no other test shares
	s := &site{Cluster: slurmtest.Start(t, slurmtest.Linux, o)}
	s.bin = s.Install(t, binary)
	lua := wardentest.Read("../../../../examples/site/job_submit.lua")
	with := strings.Replace(lua, `"/usr/bin/rsswarden"`, `"`+s.bin+`"`, 1)
	if with == lua {
		t.Fatal("the example has no line with the program")
	}
	wardentest.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(s.Conf()), "job_submit.lua"), []byte(with), 0o644))
	wardentest.NoError(t, os.WriteFile(s.Conf(), append(wardentest.ReadFile(t, s.Conf()), "JobSubmitPlugins=lua\n"...), 0o644))
	if got := s.Admin(t, "scontrol", "reconfigure"); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	job := func(t *testing.T, script string) (r slurmtest.Result, names, rest string) {
		r = s.Submit(t, script, "--mem=300").Wait(t)
		parents, rest := by(r.Stdout)
		return r, strings.Join(parents, " "), rest
	}
	for _, row := range []struct{ name, script, by string }{
		{"sh", "#!/bin/sh\n" + script, "rsswarden slurmstepd"}, // of the step srun is the parent
		{"bash", "#!/bin/bash -eu\n#SBATCH --job-name=named\n" + parent + "\n#SBATCH --job-name=late\n[ $SLURM_JOB_NAME = named ] && echo $-", "rsswarden"},
		{"env", "#!/usr/bin/env bash\n" + parent, "rsswarden"},
		{"blank", "#! /bin/bash\n" + parent, "rsswarden"},
		{"python", "#!/usr/bin/python3\nprint('by', open(f'/proc/{__import__(\"os\").getppid()}/comm').read().strip())", "slurmstepd"},
		{"typed already", "#!/bin/bash\n" + parent + "\n" + s.bin + " run --quiet -- sh -c '" + parent + "'", "slurmstepd rsswarden"},
		{"off", "#!/bin/bash\n#SBATCH --export=ALL,RSSWARDEN=off\n" + parent, "slurmstepd"},
		{"array", "#!/bin/bash\n#SBATCH --array=4\n" + parent + "\necho $SLURM_ARRAY_TASK_ID", "rsswarden"},
		{"status", "#!/bin/bash\n" + parent + "\nexit 7", "rsswarden"},
		{"submits another", "#!/bin/bash\n" + parent + "\nsbatch --wait -Q --mem=200 -o other --wrap '" + parent + "'; cat other", "rsswarden rsswarden"},
	} {
		if row.name == "off" && suite != "" {
			continue // there #SBATCH --export wants a login shell of the user's
		}
		t.Run(row.name, func(t *testing.T) {
			got, names, rest := job(t, row.script)
			want := map[string]struct {
				code int
				rest string
			}{"bash": {0, "ehuB\n"}, "array": {0, "4\n"}, "status": {7, ""}}[row.name]
			if names != row.by || rest != want.rest || got.ExitCode != want.code || got.Signal != 0 || got.Stderr != "" {
				t.Errorf("%s %d, children of %s\n%s%s", got.State, got.ExitCode, names, got.Stdout, got.Stderr)
			}
		})
	}
	t.Run("truncated", func(t *testing.T) {
		program := wardentest.ReadFile(t, s.bin)
		wardentest.NoError(t, os.Remove(s.bin))
		wardentest.NoError(t, os.WriteFile(s.bin, program[:len(program)/2], 0o755))
		if got, names, _ := job(t, "#!/bin/sh\n"+parent); names != "slurmstepd" || got.State != "COMPLETED" || got.Stderr != "" {
			t.Errorf("%s %d\n%s%s", got.State, got.ExitCode, got.Stdout, got.Stderr)
		}
	})
}
