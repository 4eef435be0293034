package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
)

// textfile is a file for node_exporter's textfile collector, which reads all *.prom of a
// directory at each scrape.
type textfile struct{ dir string }

func (t *textfile) name() string { return filepath.Join(t.dir, programName+".prom") }

// write puts a view into the file at once: a reader has the old one or the new one.
func (t *textfile) write(v *view) error {
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(v, set.Put)
	f, err := os.CreateTemp(t.dir, "."+programName+"-*") // O_EXCL, and no *.prom
	if err != nil {
		return fmt.Errorf("cannot write metrics: %w", err)
	}
	_, err = f.Write(set.Text())
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), t.name())
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write metrics: %w", err)
	}
	return nil
}

// remove has nobody read what is no longer so.
func (t *textfile) remove() { os.Remove(t.name()) }
