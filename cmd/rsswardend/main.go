// Command rsswardend tells Prometheus of the memory of all Slurm jobs of a node.
//
//	rsswardend [--listen ADDR] [--textfile DIR] [--records DIR]
//
// It finds jobs and steps in the cgroup tree and reads what they are charged, what of it
// can end in an OOM kill, their limits and the time that is left; no privilege is
// needed, and no file of a user or process's environment is read. Each job that
// loses a process to the OOM killer is told of on stderr and, with --records, in a
// file. It is the node's, and refuses to run inside a job.
//
//	rsswardend send
//
// carries one alert of a run to its receiver. rsswarden starts it, and links nothing
// that talks to the network itself.
package main

import (
	"os"
	"strings"
)

// version is set by the linker; `make build` puts the git description here.
var version = "unknown"

func main() {
	if len(os.Args) == 2 && os.Args[1] == sendCommand {
		os.Exit(send(os.Stdin, os.Stdout))
	}
	os.Exit(run(process{args: os.Args, lookup: os.LookupEnv, stdout: os.Stdout, stderr: os.Stderr}))
}

// process is what the program may know of the process it runs in; nothing below main
// reads os.Args or the environment itself.
type process struct {
	args           []string
	lookup         func(string) (string, bool)
	stdout, stderr *os.File
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
}
