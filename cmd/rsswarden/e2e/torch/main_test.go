// Package torch runs real PyTorch trainings, without Slurm.
package torch

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}))
}
