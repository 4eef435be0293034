package main

import (
	"os"
	"path/filepath"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// promfile is a file for node_exporter's textfile collector, which reads all *.prom of a
// directory at each scrape.
type promfile struct {
	dir     string
	written bool // the file is ours
}

func (t *promfile) name() string { return filepath.Join(t.dir, programName+".prom") }

// write puts a view into the file at once: a reader has the old one or the new one.
func (t *promfile) write(v *view) error {
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(v, set.Put)
	err := textfile.Replace(t.name(), set.Text())
	t.written = t.written || err == nil
	return err
}

// remove has nobody read what is no longer so.
func (t *promfile) remove() {
	if t.written {
		os.Remove(t.name())
	}
}
