// Package run runs commands under rsswarden, without Slurm or PyTorch: what they inherit, alerts, records.
package run

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Daemon: new(string)}))
}
