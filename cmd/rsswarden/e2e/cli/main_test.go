// Package cli has the command line used as a user does: scripts, shells, documents.
package cli

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for,
// ofSite one whose site file is etc/rsswarden.toml of its working directory.
var binary, faulty, ofSite string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty, wardentest.Daemon: new(string), wardentest.Site: &ofSite}))
}
