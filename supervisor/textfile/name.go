// Package textfile keeps a file of metrics for the textfile collector of node_exporter
// (https://github.com/prometheus/node_exporter#textfile-collector): one a run, replaced
// as a whole, removed at the end. The directory is the site's, may be shared by users
// and nodes, and may be full, gone or hung: whoever tells waits for none of that.
package textfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// Name is the name of a file: no two runs have the same, and it tells whether its run
// may still write it.
type Name struct {
	Job, Step, Node string // the first two empty outside Slurm
	// PID and Start are the process whose end is that of the run, in the PID namespace
	// Space of the boot Boot.
	PID   int
	Start uint64
	Space string
	Boot  string
}

// Suffix is that of the files which node_exporter reads.
const Suffix = ".prom"

const (
	prefix    = "rsswarden_"
	tmpSuffix = ".tmp"
)

// Of returns the name of the file of a process.
func Of(proc string, pid int, job, step, node string) Name {
	n := Name{Job: clean(job, "none"), Step: clean(step, "none"), Node: clean(node, "none"), PID: pid, Space: "none", Boot: "none"}
	n.Start, _ = proctree.StartTime(proc, pid)
	if text, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil {
		n.Space = clean(strings.TrimRight(strings.TrimPrefix(text, "pid:["), "]"), "none")
	}
	if b, err := procfile.Read(filepath.Join(proc, "sys/kernel/random/boot_id"), procfile.Small); err == nil {
		first, _, _ := strings.Cut(string(b), "-") // 32 bits tell one boot of a node from another
		n.Boot = clean(first, "none")
	}
	return n
}

// clean leaves of a name what every file system takes, and what divides none.
func clean(text, empty string) string {
	const most = 64
	if text == "" {
		return empty
	}
	text = text[:min(len(text), most)]
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, text)
}

// String is the name in a directory.
func (n Name) String() string {
	return fmt.Sprintf("%s%s_%s_%s_%d_%d_%s_%s%s", prefix, n.Job, n.Step, n.Node, n.PID, n.Start, n.Space, n.Boot, Suffix)
}

// ParseName reads what [Name.String] wrote, and what the file is called while it is
// being written.
func ParseName(file string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(file, tmpSuffix), prefix)
	if !ok {
		return n, false
	}
	if rest, ok = strings.CutSuffix(rest, Suffix); !ok {
		return n, false
	}
	parts := strings.Split(rest, "_")
	if len(parts) != 7 {
		return n, false
	}
	for _, p := range parts {
		if p == "" || clean(p, "") != p {
			return n, false
		}
	}
	pid, err := strconv.ParseUint(parts[3], 10, 31)
	start, err2 := strconv.ParseUint(parts[4], 10, 64)
	n = Name{Job: parts[0], Step: parts[1], Node: parts[2], PID: int(pid), Start: start, Space: parts[5], Boot: parts[6]}
	return n, err == nil && err2 == nil && pid > 0
}
