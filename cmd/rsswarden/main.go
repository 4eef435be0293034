// Command rsswarden runs a training job inside its memory limit.
//
//	rsswarden run [OPTIONS] [--] COMMAND [ARG...]
//
// starts the command, watches the whole process tree against the limit that
// really kills here, warns early, has loader workers give memory back, and
// ends as the command ended.
package main

import (
	"os"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// version is set by the linker; `make build` puts the git description here.
var version = "unknown"

// siteFile holds the options of a site. Tests link another name in; users cannot.
var siteFile = "/etc/rsswarden.toml"

func main() {
	os.Exit(run(process{
		args:   os.Args,
		lookup: os.LookupEnv,
		env:    hold.Environ(),
		stdout: os.Stdout,
		stderr: os.Stderr,
		site:   siteFile,
	}))
}

// process is what a command may know of the process it runs in; nothing below
// main reads os.Args or the environment itself.
type process struct {
	args   []string
	lookup func(string) (string, bool)
	env    []string
	stdout *os.File
	stderr *os.File
	site   string // the site's configuration file
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
}
