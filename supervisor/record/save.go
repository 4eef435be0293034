package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Save makes a record of a run that is in memory, in a directory of its ID below
// dir, and returns that. It is for those who try what reads records: a run of a
// job is recorded by its watcher, with a [Recorder]. Events must have their times.
func Save(dir string, r *Run) (string, error) {
	at := filepath.Join(dir, r.Meta.ID)
	if err := os.Mkdir(at, 0o700); err != nil {
		return "", fmt.Errorf("cannot save record: %w", err)
	}
	into, err := os.Open(at)
	if err != nil {
		return "", fmt.Errorf("cannot save record: %w", err)
	}
	s, err := openStore(into, fullSize)
	if err != nil {
		return "", err
	}
	defer s.close()
	items, err := itemsOf(r)
	if err == nil {
		err = s.commit(items)
	}
	if err != nil {
		return "", fmt.Errorf("cannot save record %s: %w", at, err)
	}
	return at, nil
}

// itemsOf is all that a record has of a run.
func itemsOf(r *Run) ([]item, error) {
	var items []item
	var failed error
	add := func(kind byte, n uint64, v any) {
		value, err := json.Marshal(v)
		if err != nil {
			failed = err
		}
		items = append(items, item{kind, n, value})
	}
	add(keyMeta, 0, r.Meta)
	for i := range r.Limits {
		add(keyLimit, uint64(i), &r.Limits[i])
	}
	for i := range r.Procs {
		add(keyProc, uint64(i), &r.Procs[i])
	}
	for i := range r.Events {
		add(keyEvent, 1<<40+uint64(i)+1, r.Events[i].Value)
	}
	var enc encoder
	blockAt := time.Duration(0)
	put := func() {
		if !enc.empty() {
			items = append(items, item{keyBlock, uint64(blockAt / time.Millisecond), enc.block(0)})
		}
	}
	for s := range r.Samples() {
		c := s.clone()
		for i := range c.Limits {
			if n := c.Limits[i].Limit; n < len(r.Limits) {
				c.Limits[i] = stored(c.Limits[i], r.Limits[n].Name)
			}
		}
		if enc.full() {
			put()
		}
		if enc.empty() {
			blockAt = c.At
		}
		enc.add(&c)
	}
	put()
	return items, failed
}
