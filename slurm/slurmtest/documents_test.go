package slurmtest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestWorksWith holds the README's row on Slurm on cgroup v1 against what [eachSlurm] runs.
func TestWorksWith(t *testing.T) {
	var list []string
	eachSlurm(t, func(t *testing.T, o slurmtest.Options) {
		cmd := exec.Command("slurmd", "-V")
		if o.Suite != "" {
			cmd = debian.Need(t, o.Suite).Command("slurmd", "-V")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Skip("no Slurm: ", err)
		}
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // slurm-wlm 26.05.5
		list = append(list, version[:strings.LastIndex(version, ".")])
	})
	if len(list) == 3 {
		rsstest.WorksWith(t, "Slurm, cgroup v1", list)
	}
}
