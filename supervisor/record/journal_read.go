package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// mostLine bounds a line of a journal: a start event with a long command and
// many settings takes some 20 KiB.
const mostLine = 1 << 20

// ReadJournal reads a journal. Lines that cannot be understood are left out and listed in
// Run.Damage, except for the last, which a kill may have cut off.
func ReadJournal(path string) (*Run, error) {
	r, err := readJournal(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read journal %s: %w", path, Reason(err))
	}
	return r, nil
}

func readJournal(path string) (*Run, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := parseJournal(io.LimitReader(f, 4*mostJournal))
	if err == nil {
		r.Sources = append(r.Sources, path)
		r.owner = int(info.Sys().(*syscall.Stat_t).Uid)
	}
	return r, err
}

func parseJournal(from io.Reader) (*Run, error) {
	r := &Run{JournalOnly: true}
	bad, found, cut := 0, false, false
	var p parts
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(in)
		if len(line) == 0 && err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			break
		}
		if len(line) == 0 {
			continue // here a watcher was started again
		}
		cut = err != nil // no newline: this is the last
		ok := false
		if !found {
			var first runLine
			if p.decode(line, &first) != nil || first.Event != NameRun || first.Run.ID == "" {
				return nil, ErrForeign
			}
			if err := first.Run.readable(); err != nil {
				return nil, err
			}
			r.Meta, found, ok = first.Run, true, true
		} else {
			ok = r.line(line, &p)
		}
		if !ok && !cut {
			bad++
		}
		if err != nil {
			break
		}
	}
	if !found {
		return nil, ErrForeign
	}
	if bad > 0 {
		r.Damage = append(r.Damage, fmt.Sprintf("%d lines of the journal are damaged and were left out", bad))
	}
	slices.SortStableFunc(r.plain, func(a, b Sample) int { return int(a.At - b.At) })
	return r, nil
}

// readLine returns the next line without its end. A longer one than mostLine is cut.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line) < mostLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

func (r *Run) line(line []byte, p *parts) bool {
	var h event.Head
	if json.Unmarshal(line, &h) != nil {
		return false
	}
	if h.Event == NameRun {
		var again runLine
		ok := p.decode(line, &again) == nil && again.Run.ID == r.Meta.ID
		if ok {
			r.Meta.Record = again.Run.Record
		}
		return ok
	}
	at := max(0, h.Time.Sub(r.Meta.Start)) // the clock may have been set back
	if h.Event != event.NameSample {
		e, err := p.event(line)
		e.At = at
		if err == nil {
			r.Events = append(r.Events, e)
		}
		return err == nil
	}
	var s sampleLine
	if p.decode(line, &s) != nil {
		return false
	}
	out := Sample{At: at, AtDecision: s.Decision, Roles: s.Roles}
	for i := range s.Limits {
		l := still(&s.Limits[i])
		out.Limits = append(out.Limits, reading(&s.Limits[i], r.limit(&l)))
	}
	r.plain = append(r.plain, out)
	return true
}
