// Package slurm runs jobs of a real Slurm.
package slurm

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for.
var binary, faulty string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty, wardentest.Daemon: new(string)}, slurmtest.Shutdown))
}

// cluster is one that tests may share, with rsswarden installed for its jobs.
func cluster(t *testing.T, mode slurmtest.Mode) (c *slurmtest.Cluster, warden string) {
	t.Helper()
	c = slurmtest.Start(t, mode, slurmtest.Usual)
	return c, c.Install(t, binary)
}
