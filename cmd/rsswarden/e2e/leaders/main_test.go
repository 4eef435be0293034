// Package leaders asks the leaders of runs: status, top, recycle, checkpoint.
package leaders

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}))
}
