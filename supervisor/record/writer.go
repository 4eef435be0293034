package record

import (
	"encoding/json"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// write is the goroutine that has the record open.
func (r *Recorder) write() {
	defer close(r.done)
	s, live, err := r.openRecord()
	if err != nil {
		r.stop(err)
		return
	}
	defer s.close()
	defer live.close()
	lastLook, owed := time.Now(), false
	for {
		r.mu.Lock()
		w, closed := r.waiting, r.closed
		r.waiting = waiting{}
		if w.grown {
			w.items = append(w.items, item{keyBlock, uint64(r.blockAt / time.Millisecond), r.enc.snapshot(0)})
		}
		r.mu.Unlock()
		if len(w.items) > 0 {
			fault.Point("record")
			if err := s.commit(w.items); err != nil {
				r.stop(wrapWrite(s.dir.Name(), err))
				return
			}
		}
		since := time.Since(s.synced)
		if owed = owed || w.sync; owed && since >= syncAfter || since >= syncEvery {
			begun, err := s.sync()
			if err != nil {
				r.stop(wrapWrite(s.dir.Name(), err))
				return
			}
			owed = owed && !begun
		}
		if time.Since(lastLook) >= vanishEvery {
			lastLook = time.Now()
			if s.vanished() {
				r.stop(wrapWrite(s.dir.Name(), errVanished))
				return
			}
		}
		if closed {
			return
		}
		<-r.wake
	}
}

// openRecord makes the record and puts its first value.
func (r *Recorder) openRecord() (*store, *live, error) {
	dir, size, err := makeRecordDir(r.opt.Places, r.opt.Meta.ID, r.opt.Attempt)
	if err != nil {
		return nil, nil, err
	}
	s, err := openStore(dir, size)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.size = size
	r.mu.Unlock()
	meta := r.opt.Meta
	meta.V, meta.Record = Version, dir.Name()
	value, err := json.Marshal(meta)
	if err == nil {
		err = s.commit([]item{{keyMeta, 0, value}})
	}
	if err != nil {
		s.close()
		return nil, nil, wrapWrite(dir.Name(), err)
	}
	r.journal.recordAt(meta)
	return s, listen(s), nil
}

// stop ends the record; the journal goes on.
func (r *Recorder) stop(err error) {
	r.mu.Lock()
	r.waiting = waiting{off: true}
	r.mu.Unlock()
	r.opt.Fault("record", err)
}
