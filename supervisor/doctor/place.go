package doctor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// Place is a directory that a run writes to.
type Place struct {
	Dir string
	// FS names its file system, and Free is what is free there.
	FS   string
	Free rss.Bytes
	// Err says why nothing can be written there.
	Err error
	// Passed are better places that were passed over, with the reason of each.
	Passed []error
	// Off says who switched it off.
	Off string
	// Need is what must be free.
	Need rss.Bytes
}

// on is what can be said of where a directory lies.
func (p *Place) on() string {
	if p.FS == "" {
		return p.Dir
	}
	return fmt.Sprintf("%s, %s, %v free", p.Dir, p.FS, p.Free)
}

// passed says why it is no better place.
func (p *Place) passed(c *Check) bool {
	if len(p.Passed) == 0 {
		return false
	}
	c.Found += fmt.Sprintf("; passed over: %v", p.Passed[0])
	return true
}

const setRuntime = "have RSSWARDEN_RUNTIME name a directory of yours on a disk of this node"

// RunDir is where the loader hook and the watcher speak with each other.
func RunDir(p Place) Check {
	c := Check{Name: NameRunDir, Status: OK, Found: p.on(), Source: "RSSWARDEN_RUNTIME, TMPDIR, /tmp"}
	switch {
	case p.Off != "":
		c.Status, c.Found, c.Source = Off, "none is made: loaders are not talked to", p.Off
		return c
	case p.Err != nil:
		c.Status, c.Found, c.Do = Off, fmt.Sprintf("none can be made: %v", p.Err), setRuntime
		return c
	case p.Free < p.Need:
		c.Status, c.Do = Limited, "free some of it, or "+setRuntime
		c.Found += "; nearly full: what the hook has to say may be lost"
	}
	if p.passed(&c) {
		c.Status, c.Do = Limited, setRuntime
	}
	return c
}

// HookDir is where the files of the hook lie.
func HookDir(p Place) Check {
	c := Check{Name: NameHookDir, Status: OK, Found: p.on(), Source: "XDG_CACHE_HOME, HOME"}
	switch {
	case p.Off != "":
		c.Status, c.Found, c.Source = Off, "none is needed: loaders are not talked to", p.Off
		return c
	case p.Err != nil:
		c.Status, c.Found, c.Do = Off, fmt.Sprintf("the hook cannot be laid down: %v", p.Err), "have XDG_CACHE_HOME name a directory of yours"
		return c
	}
	if p.passed(&c) {
		c.Status = Limited
		c.Found += "; each run lays it down anew"
		c.Do = "have XDG_CACHE_HOME name a directory that only you can write to"
	}
	return c
}

// Record is where the full record of a run goes.
func Record(p Place) Check {
	c := Check{Name: NameRecord, Status: OK, Found: p.on(), Source: "RSSWARDEN_RUNTIME, TMPDIR, /tmp; outside Slurm XDG_STATE_HOME, HOME"}
	switch {
	case p.Off != "":
		c.Status, c.Found, c.Source = Off, "no record is kept", p.Off
		c.Do = "leave the option record at auto, to know afterwards why a job died"
		return c
	case p.Err != nil:
		c.Status, c.Found, c.Do = Off, fmt.Sprintf("no full record can be kept: %v", p.Err), "name a directory on a disk of this node: rsswarden run --record DIR"
		return c
	}
	p.passed(&c) // a home on a file server is no fault
	return c
}

// Journal is where the journal of a run goes, which outlives the node.
func Journal(p Place) Check {
	c := Check{Name: NameJournal, Status: OK, Found: p.on(), Source: "in Slurm SLURM_SUBMIT_DIR; XDG_STATE_HOME, HOME"}
	switch {
	case p.Off != "":
		c.Status, c.Found, c.Source = Off, "no journal is kept", p.Off
		return c
	case p.Err != nil:
		c.Status, c.Found = Off, fmt.Sprintf("no journal can be kept: %v", p.Err)
		c.Do = "submit from a directory that you can write to, or have XDG_STATE_HOME name one"
		return c
	case p.Free < p.Need:
		c.Status, c.Do = Limited, "free some of it: the journal ends where the file system is full"
		c.Found += "; nearly full"
	}
	if p.passed(&c) {
		c.Status, c.Do = Limited, "submit from a directory that you can write to"
	}
	return c
}
