package record

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// use does with a run what its readers do: nothing it refers to may be missing.
func use(t *testing.T, r *Run) {
	last := time.Duration(-1)
	for s := range r.Samples() {
		if s.At < last {
			t.Fatalf("a sample of %v after one of %v", s.At, last)
		}
		last = s.At
		for i := range s.Limits {
			_ = r.Limits[s.Limits[i].Limit].Name
		}
		for i := range s.Procs {
			_ = r.Procs[s.Procs[i].Proc].Comm
		}
	}
	for _, e := range r.Events {
		if e.Value == nil {
			t.Fatalf("event %s without a value", e.Name)
		}
	}
	_ = r.Exit()
}

// FuzzRecordFile changes the bytes of a whole record, at a place and to what the
// fuzzer says, and reads it as a user would.
func FuzzRecordFile(f *testing.F) {
	whole := f.TempDir()
	fill(f, whole, 1<<20, 300, 4, nil)
	good, err := os.ReadFile(filepath.Join(whole, dataFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(16), []byte{0}, uint32(0))
	f.Add(uint32(4096+16), []byte("junk"), uint32(len(good)-1))
	f.Add(uint32(8192), bytes.Repeat([]byte{0xff}, 64), uint32(0))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(good)
		copy(b[int(at)%len(b):], patch)
		if cut != 0 {
			b = b[:int(cut)%len(b)]
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, dataFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(context.Background(), dir, child); err == nil {
			use(t, r)
		}
	})
}

// FuzzSalvage searches any bytes at all.
func FuzzSalvage(f *testing.F) {
	whole := f.TempDir()
	fill(f, whole, 1<<20, 100, 4, nil)
	good, err := os.ReadFile(filepath.Join(whole, dataFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:3*4096])
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newLoading()
		_ = salvage(bytes.NewReader(b), int64(len(b)), l.entry)
		if r, err := l.finish("fuzz"); err == nil {
			use(t, r)
		}
	})
}

func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	key := makeKey(keyMeta, 0)
	_ = putFrame(&b, key, seal(key, []byte(`{"v":1,"id":"x"}`)))
	_ = putFrame(&b, nil, make([]byte, 8))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newLoading()
		_ = l.read(bytes.NewReader(b))
		if r, err := l.finish("fuzz"); err == nil {
			use(t, r)
		}
	})
}

func FuzzBlock(f *testing.F) {
	var enc encoder
	var s Sample
	tab := newTables(1)
	for n := range 20 {
		tab.sample(look(time.Duration(n)*time.Second, n, 3), &s)
		enc.add(&s)
	}
	f.Add(enc.snapshot(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		use(t, &Run{blocks: [][]byte{b}, Procs: make([]Proc, 4), Limits: make([]event.Limit, 2)})
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"v":1,"event":"run","run":{"v":1,"id":"x","start":"2026-11-22T00:00:00Z"}}
{"v":1,"time":"2026-11-22T00:00:01Z","event":"sample","limits":[{"limit":"slurm","scope":"step","used_bytes":1,"limit_bytes":2,"eta_s":null}],"roles":[{"role":"worker","count":4}]}
{"v":1,"time":"2026-11-22T00:00:02Z","event":"exit","by":"command","code":0,"verdict":"fine"}
`))
	f.Add([]byte(`{"v":1,"event":"run","run":{"v":1,"id":"x","start":"2026-11-22T00:00:00Z"}}
{"v":1,"time":"2026-11-22T00:00:01Z","seq":1,"event":"loader","what":"pickling","pid":7,"sharing":{"start_method":"spawn","strategy":"file_descriptor","workers":2,"tensors":9000,"maps_needed":9100,"maps_limit":65530,"fds_needed":9010,"fds_limit":1024}}
{"v":1,"time":"2026-11-22T00:00:02Z","seq":2,"event":"diagnosis","finding":"tensors by spawn","confidence":"certain","role":"trainer","pid":7,"bytes":4096,"evidence":["a"],"advice":["b"]}
{"v":1,"time":"2026-11-22T00:00:02Z","seq":3,"event":"diagnosis","finding":7,"evidence":{}}
{"v":1,"time":"2026-11-22T00:00:03Z","seq":4,"event":"cure","remedy":"nofile","pid":7,"ok":true,"before":1024,"after":65536}
`))
	f.Add([]byte(`{"v":1,"event":"run","run":{"v":1,"id":"x","start":"2026-11-22T00:00:00Z","mono_ns":7}}
{"v":1,"time":"2026-11-22T00:00:01Z","seq":1,"event":"rank","what":"leads","task":0,"step":"0","node":"n1","pid":8,"holder":7,"leader":6}
{"v":1,"time":"2026-11-22T00:00:02Z","seq":2,"event":"rank","what":"ended","task":-1,"signal":"SIGKILL"}
{"v":1,"time":"2026-11-22T00:00:03Z","seq":3,"event":"rank","what":7,"task":"x"}
`))
	f.Add([]byte(`{"v":1,"event":"run","run":{"v":1,"id":"x","start":"2026-11-22T00:00:00Z","mono_ns":7}}
{"v":1,"time":"2026-11-22T00:00:01Z","seq":0,"event":"handover","ran_ns":1000000000,"clock_ns":90000000000,"own_level":"46.0","memory":{"v":1,"at_ns":80000000000,"rungs":[{"rule":"80%:warn","limit":"slurm","scope":"step","accounting":"rss","level":"46.0","fired":true,"fired_at_ns":70000000000,"gap_ns":60000000000}]}}
{"v":1,"time":"2026-11-22T00:00:02Z","seq":0,"event":"handover","ran_ns":-1,"clock_ns":9223372036854775807,"memory":null}
{"v":1,"time":"2026-11-22T00:00:03Z","seq":0,"event":"handover","ran_ns":"x","own_level":7,"memory":[[]]}
`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseJournal(bytes.NewReader(b)); err == nil {
			use(t, r)
		}
	})
}
