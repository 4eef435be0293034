package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// readPatience bounds the reading of one record.
const readPatience = time.Minute

// Child makes the command that runs [Confine], and [Export] from descriptor 3 to its
// standard output. It hands on no other descriptor.
type Child func() *exec.Cmd

// Read reads the record in dir: from its watcher where the run goes on, else by
// a child process. What can be read of a damaged one is returned, with
// Run.Damage saying what is missing; an error means that nothing can be.
func Read(ctx context.Context, dir string, child Child) (*Run, error) {
	src, err := openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", dir, err)
	}
	defer src.close()
	if c, err := src.dial(); err == nil {
		defer c.Close()
		l := newLoading()
		if l.frames(c, ""); l.found {
			run, err := l.finish(dir)
			if err == nil {
				run.Live = run.Exit() == nil
				src.own(run)
			}
			return run, err
		}
	}
	if err := src.keep(); err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	cmd := child()
	cmd.ExtraFiles = []*os.File{src.data}
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = startWithoutPrivileges(cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", dir, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	l := newLoading()
	broke := l.read(out)
	if broke != nil && !errors.Is(broke, errCut) {
		_ = cmd.Process.Kill() // a damaged tree may have no end
	}
	err = cmd.Wait()
	why := ""
	switch {
	case ctx.Err() != nil:
		why = "it could not be read in time"
	case err != nil && (broke == nil || errors.Is(broke, errCut)):
		why = crash(err, said.String())
	case broke != nil:
		why = broke.Error()
	case l.bad > 0:
		why = fmt.Sprintf("%d of %d entries are damaged", l.bad, l.n)
	default:
		return l.ofFile(src)
	}
	if !errors.Is(broke, errParts) {
		l = l.orSalvaged(src)
	}
	switch {
	case !l.found && strings.HasPrefix(why, ErrForeign.Error()):
		return nil, fmt.Errorf("cannot read record %s: %w", dir, ErrForeign)
	case !l.found:
		return nil, fmt.Errorf("cannot read record %s: %s", dir, why)
	}
	l.bad = 0 // told already
	l.damage(fmt.Sprintf("record damaged: %s; %d entries are whole, the last of %s", strings.TrimPrefix(why, "damaged: "), l.n, l.until()))
	return l.ofFile(src)
}

// orSalvaged is what the pages of the file hold, where that is more.
func (l *loading) orSalvaged(src *source) *loading {
	found := newLoading()
	err := salvage(src.data, src.size, found.entry)
	if (err == nil || errors.Is(err, errParts)) && found.found && found.n > l.n-uint64(l.bad) {
		return found
	}
	return l
}

// ofFile makes a run of what the file of a record has. Its watcher may be at work
// all the same, stopped or without a socket.
func (l *loading) ofFile(src *source) (*Run, error) {
	run, err := l.finish(src.name)
	if err == nil {
		run.Live = run.Exit() == nil && held(src.dir)
		src.own(run)
	}
	return run, err
}

// crash says how a child that reads a record has ended.
func crash(err error, said string) string {
	for _, end := range []struct{ word, means string }{
		{"SIGBUS", "LMDB reached for pages that are not there (SIGBUS)"},
		{"SIGABRT", "LMDB found it inconsistent (SIGABRT)"},
		{"SIGSEGV", "LMDB lost its way in it (SIGSEGV)"},
	} {
		if strings.Contains(said, end.word) || strings.Contains(err.Error(), strings.ToLower(end.word)) {
			return end.means
		}
	}
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	if _, why, ok := strings.Cut(said, ": "); ok && strings.HasPrefix(said, "cannot ") {
		said = why
	}
	if said == "" {
		return err.Error()
	}
	return said
}

// tail keeps the first bytes that are written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if room := 4096 - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// loading is a run while it is read.
type loading struct {
	run    Run
	parts  parts
	found  bool // there is a Meta
	n      uint64
	bad    int
	limits map[int]int // number in the record to index in the run
	procs  map[int]int
	events []numbered
	last   time.Duration
	meta   error
}

type numbered struct {
	n uint64
	Entry
}

func newLoading() *loading {
	return &loading{limits: map[int]int{}, procs: map[int]int{}}
}

func (l *loading) damage(text string) { l.run.Damage = append(l.run.Damage, text) }

// until is the last moment that was read, for people.
func (l *loading) until() string {
	return l.run.Meta.Start.Add(l.last).Local().Format("15:04:05")
}

// frames reads frames, and notes where they break off.
func (l *loading) frames(r io.Reader, _ string) {
	if err := l.read(r); err != nil {
		l.damage("the watcher's answer " + err.Error())
	}
}

// read reads frames. The error says where they end too early.
func (l *loading) read(r io.Reader) error {
	entries, err := frames(r, l.entry)
	if err != nil {
		return err
	}
	if l.n != entries {
		return fmt.Errorf("%d of %d entries were found", l.n, entries)
	}
	return nil
}

// entry takes in one entry as it was stored. The error is errParts, or nil.
func (l *loading) entry(key, sealed []byte) error {
	l.n++
	value, err := open(key, sealed)
	kind, n, ok := splitKey(key)
	if err != nil || !ok {
		l.bad++
		return nil
	}
	switch kind {
	case keyMeta:
		err = l.takeMeta(value)
	case keyLimit:
		var v event.Limit
		if err = l.parts.decode(value, &v); err == nil {
			l.limits[int(n)] = len(l.run.Limits)
			l.run.Limits = append(l.run.Limits, v)
		}
	case keyProc:
		var v Proc
		if len(l.run.Procs) >= mostRecorded {
			err = errParts
		} else if err = json.Unmarshal(value, &v); err == nil {
			l.procs[int(n)] = len(l.run.Procs)
			l.run.Procs = append(l.run.Procs, v)
		}
	case keyEvent, keyRoutine:
		err = l.takeEvent(n, value)
	case keyBlock:
		if len(value) > 0 && value[0] != 0 {
			l.run.Thinned = true
		}
		if n < 1<<42 {
			l.last = max(l.last, time.Duration(n)*time.Millisecond)
		}
		l.run.blocks = append(l.run.blocks, value)
	}
	if errors.Is(err, errParts) {
		return err
	}
	if err != nil {
		l.bad++
	}
	return nil
}

func (l *loading) takeMeta(value []byte) error {
	if err := l.parts.decode(value, &l.run.Meta); err != nil {
		return err
	}
	if v := l.run.Meta.V; v > Version {
		l.meta = fmt.Errorf("%w (format %d, this one reads up to %d)", ErrNewer, v, Version)
	}
	l.found = true
	return nil
}

func (l *loading) takeEvent(n uint64, value []byte) error {
	e, err := l.parts.event(value)
	if err != nil {
		return err
	}
	l.events = append(l.events, numbered{n, e})
	return nil
}

// finish makes a run of what was read.
func (l *loading) finish(source string) (*Run, error) {
	switch {
	case l.meta != nil:
		return nil, fmt.Errorf("cannot read record %s: %w", source, l.meta)
	case !l.found:
		return nil, fmt.Errorf("cannot read record %s: %w", source, ErrForeign)
	}
	if l.bad > 0 {
		l.damage(fmt.Sprintf("%d of %d entries are damaged and were left out", l.bad, l.n))
	}
	r := &l.run
	r.Sources = append(r.Sources, source)
	slices.SortFunc(l.events, func(a, b numbered) int { return int(int64(a.n) - int64(b.n)) })
	before := uint64(0)
	for _, e := range l.events {
		e.At = e.Value.(interface{ When() time.Time }).When().Sub(r.Meta.Start)
		if gap := e.n - before - 1; before != 0 && e.n>>40 == before>>40 {
			r.Dropped += int(gap)
		}
		before = e.n
		r.Events = append(r.Events, e.Entry)
	}
	r.number(l.limits, l.procs)
	return r, nil
}
