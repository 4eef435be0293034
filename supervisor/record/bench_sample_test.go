package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// idleRecorder is one that nobody writes for: what it queues is thrown away.
func idleRecorder() *Recorder {
	r := New(Options{Meta: testMeta()})
	r.begun = true
	return r
}

// BenchmarkSample is what the watcher's loop waits for, and beside it what it
// would take to write the same as text.
func BenchmarkSample(b *testing.B) {
	for _, procs := range []int{16, 64} {
		for _, still := range []bool{false, true} {
			b.Run(fmt.Sprintf("record/%d/%s", procs, moves(still)), func(b *testing.B) {
				r, c := idleRecorder(), newScene(procs, still)
				b.ReportAllocs()
				var took time.Duration
				n := 0
				for b.Loop() {
					l := c.at(time.Duration(n) * time.Second)
					began := time.Now()
					r.Sample(l)
					took += time.Since(began)
					if n++; n%64 == 0 {
						r.waiting, r.journal.lines = waiting{}, nil
					}
				}
				b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(n), "µs/sample")
			})
		}
		for name, line := range map[string]func([]byte, *Look) []byte{"json": jsonLine, "text": textLine} {
			b.Run(fmt.Sprintf("%s/%d/moving", name, procs), func(b *testing.B) {
				f, err := os.Create(filepath.Join(b.TempDir(), "lines"))
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				c := newScene(procs, false)
				b.ReportAllocs()
				var took time.Duration
				var buf []byte
				n := 0
				for b.Loop() {
					l := c.at(time.Duration(n) * time.Second)
					began := time.Now()
					buf = line(buf[:0], l)
					if _, err := f.Write(buf); err != nil {
						b.Fatal(err)
					}
					took += time.Since(began)
					n++
				}
				b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(n), "µs/sample")
			})
		}
	}
}

func moves(still bool) string {
	if still {
		return "still"
	}
	return "moving"
}

// jsonLine is the same sample as one line of JSON.
func jsonLine(b []byte, l *Look) []byte {
	type proc struct {
		PID   int       `json:"pid"`
		Anon  rss.Bytes `json:"anon"`
		File  rss.Bytes `json:"file"`
		Shmem rss.Bytes `json:"shmem,omitempty"`
		PSS   rss.Bytes `json:"pss,omitempty"`
		Maps  int       `json:"maps,omitempty"`
		FDs   int       `json:"fds,omitempty"`
	}
	type limit struct {
		Name  string    `json:"limit"`
		Used  rss.Bytes `json:"used"`
		Limit rss.Bytes `json:"of"`
		ETA   *float64  `json:"eta_s,omitempty"`
	}
	line := struct {
		At     float64 `json:"t"`
		Limits []limit `json:"limits"`
		Procs  []proc  `json:"procs"`
	}{At: l.At.Seconds()}
	for i := range l.Limits {
		m := &l.Limits[i]
		line.Limits = append(line.Limits, limit{string(m.Name), m.Used, m.Limit, m.ETA})
	}
	for i := range l.Sample.Procs {
		p := &l.Sample.Procs[i]
		o := proc{PID: p.ID.PID, Anon: p.Anon, File: p.File, Shmem: p.Shmem}
		if p.PSS != nil {
			o.PSS = p.PSS.PSS
		}
		if l.Counts != nil {
			o.Maps, o.FDs = l.Counts(p.ID)
		}
		line.Procs = append(line.Procs, o)
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	return append(append(b, text...), '\n')
}

// textLine is what loops over ps leave: time, PID and RSS in MB, a line a
// process.
func textLine(b []byte, l *Look) []byte {
	for i := range l.Sample.Procs {
		p := &l.Sample.Procs[i]
		b = strconv.AppendFloat(b, l.At.Seconds(), 'f', 3, 64)
		b = append(strconv.AppendInt(append(b, ' '), int64(p.ID.PID), 10), ' ')
		b = append(strconv.AppendFloat(b, p.RSS.Of(rss.MiB), 'f', 3, 64), '\n')
	}
	return b
}
