package store

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// The benchmarks of bench say by these where records of real runs are, and
// how long the run of a full one is, in hours, and where it is to be made.
const (
	envKept = "RSSWARDEN_BENCH_RECORDS"
	envFull = "RSSWARDEN_BENCH_FULL"
)

// BenchmarkKept tells how large the samples of real records are, which nothing
// else changes: the events of a short run take more.
func BenchmarkKept(b *testing.B) {
	place := os.Getenv(envKept)
	if place == "" {
		b.Skip(envKept + " names no directory of records")
	}
	for _, f := range record.Find(place) {
		b.Run(f.ID, func(b *testing.B) {
			var samples, usages int
			for b.Loop() {
				run, err := Read(context.Background(), f.Record, child)
				must(b, err)
				samples, usages = 0, 0
				for s := range run.Samples() {
					samples, usages = samples+1, usages+len(s.Procs)
				}
			}
			if usages == 0 {
				b.Fatal("the record has no samples")
			}
			b.ReportMetric(float64(blockBytes(b, copyRecord(b, f.Record)))/float64(usages), "B/blocks")
			b.ReportMetric(float64(samples), "samples")
			b.ReportMetric(float64(usages)/float64(samples), "processes")
		})
	}
}

// blockBytes is what keys and values of all blocks of a record take.
func blockBytes(b *testing.B, dir string) (size int) {
	s := newTaker(b, dir, fullSize).s
	defer s.close()
	if err := s.env.View(func(txn *lmdb.Txn) error {
		return each(txn, s.dbi, record.Item{Kind: record.KindBlock}, func(_ *lmdb.Cursor, k, v []byte) (bool, error) {
			size += len(k) + len(v)
			return true, nil
		})
	}); err != nil {
		b.Fatal(err)
	}
	return size
}

// BenchmarkFull makes the record of a node with 64 ranks of four loader workers, at a sample
// a second. Three days of that are thinned over and over.
func BenchmarkFull(b *testing.B) {
	const ranks, every, atOnce = 64, 5, 16
	length, dir, _ := strings.Cut(os.Getenv(envFull), " ")
	hours, err := strconv.Atoi(length)
	if dir == "" || err != nil {
		b.Skip(envFull + " is not the hours of a run and a directory")
	}
	samples, m := hours*3600, testMeta()
	m.Start, m.Job, m.MaxMapCount, m.MaxFDs = fullStart, &record.Job{ID: "12", Step: "0", Tasks: ranks, Nodes: 1}, 65530, 1024
	for b.Loop() {
		must(b, os.RemoveAll(dir))
		r := New(Options{Meta: m, Places: record.Places{Records: []string{dir}, Journals: []string{b.TempDir()}, Chosen: true}})
		head := func(n int, name event.Name) event.Head {
			return event.Head{V: event.Version, Time: fullStart.Add(time.Duration(n) * time.Second), Seq: r.events, Event: name}
		}
		c := newScene(ranks*every, every)
		r.Event(event.NameStart, event.Start{Head: head(0, event.NameStart), Command: m.Command, PID: 1001})
		for i := range ranks {
			pid := c.look.Sample.Procs[i*every].ID.PID
			r.Event(event.NameRank, event.Rank{Head: head(0, event.NameRank), What: event.RankJoined, Task: i, Step: "0", Node: "node", PID: pid})
		}
		for n := range samples {
			if n%2 == 0 {
				r.Event(event.NameLoader, event.LoaderSaid{Head: head(n, event.NameLoader), What: event.LoaderTrimmed, Count: 1, Freed: 6 * rss.MiB, PID: 1002 + n%12})
			}
			if n%replaceEvery == replaceEvery-1 {
				id := uint64(n / replaceEvery)
				r.Event(event.NameDecision, event.Decision{
					Head: head(n, event.NameDecision), ID: id, Rule: "90%:recycle", Action: event.ActionRecycle, Limit: event.LimitCgroup, Used: 1160 * rss.GiB, LimitSize: 1280 * rss.GiB,
				})
				r.Event(event.NameOutcome, event.Outcome{Head: head(n, event.NameOutcome), Decision: id, OK: true, Freed: 100 * rss.MiB, Duration: 0.5, Paused: 0.01})
			}
			r.Sample(c.at(time.Duration(n) * time.Second))
			for n%atOnce == atOnce-1 && r.waits() {
				time.Sleep(100 * time.Microsecond)
			}
		}
		code := 0
		r.Event(event.NameExit, event.Exit{Head: head(samples, event.NameExit), By: "command", Code: &code})
		r.Close(time.Minute)
		if r.lost > 0 {
			b.Fatalf("%d parts are lost", r.lost)
		}
		b.ReportMetric(float64(fileSize(b, filepath.Join(dir, m.ID)))/(1<<20), "MiB")
	}
	b.ReportMetric(float64(samples), "samples")
}

// waits says that the writer has something to take.
func (r *Recorder) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting.items) > 0
}

// fillUp goes on for a while beyond the first that is thinned: from then on a
// record stays as full as it is.
func fillUp(b testing.TB, k *taker) (samples int) {
	const procs, atOnce = 16, 16
	c := newScene(procs, trainerEvery)
	for end := 0; end == 0 || samples < end; {
		var items []record.Item
		for range atOnce {
			items = items[:max(0, len(items)-1)] // the block that grows is its last
			if samples%2 == 0 {
				items = append(items, loaderSays(b, samples))
			}
			items = append(items, k.items(c.at(time.Duration(samples)*time.Second), nil)...)
			samples++
		}
		if err := k.s.commit(items); err != nil {
			b.Fatalf("sample %d, %d of %d bytes in use: %v", samples, k.s.used, k.s.size, err)
		}
		if end == 0 && k.s.tiers[1] > 0 {
			end = samples + samples/5
		}
	}
	return samples
}

// fullStart is when the run of BenchmarkFull began.
var fullStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// loaderSays is what a worker says of itself at a sample.
func loaderSays(b testing.TB, n int) record.Item {
	at := fullStart.Add(time.Duration(n) * time.Second)
	value, err := json.Marshal(event.LoaderSaid{
		Head: event.Head{V: event.Version, Time: at, Seq: uint64(n), Event: event.NameLoader}, What: event.LoaderTrimmed, PID: 1002 + n%12,
	})
	must(b, err)
	return record.Item{Kind: record.KindRoutine, N: 1<<40 + 2 + uint64(n/2), Value: value}
}

// scene is a training as benchmarks have it: a trainer for every 16 processes, twelve
// loader workers each, and others that sleep. Workers map a data set and give it back, one
// is replaced now and then; PSS and counts are read seldom, as the watcher reads them.
type scene struct {
	rnd   *rand.Rand
	n     int // looks so far
	look  record.Look
	next  int // PID
	every int // processes of a trainer
}

const (
	trainerEvery = 16
	// replaceEvery is how many looks it takes until a worker is replaced.
	replaceEvery = 300
)

func newScene(procs, every int) *scene {
	c := &scene{rnd: rand.New(rand.NewPCG(1, uint64(procs))), next: 1000, every: every}
	c.look.Sample = &rss.Sample{}
	for i := range procs {
		c.look.Sample.Procs = append(c.look.Sample.Procs, c.proc(i))
	}
	c.look.Counts = c.counts
	limit := max(256, rss.Bytes(procs)*4) * rss.GiB
	c.look.Limits = []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/slurm/uid_1000/job_7", Limit: limit, LimitSource: "memory.limit_in_bytes", Binding: true},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Limit: limit, LimitSource: "SLURM_MEM_PER_NODE"},
		{Name: event.LimitNode, Scope: event.ScopeNode, Limit: 2 * limit, LimitSource: "MemTotal"},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Limit: 65530, LimitSource: "vm.max_map_count"},
	}
	return c
}

// proc is a new process in place i.
func (c *scene) proc(i int) rss.Proc {
	c.next++
	trainer := 1001 + i - i%c.every // it is never replaced
	p := rss.Proc{ID: rss.ProcID{PID: c.next, Start: uint64(c.next)}, Parent: trainer, Comm: "pt_data_worker", Role: rss.RoleWorker, Anon: 240 * rss.MiB, File: 90 * rss.MiB}
	switch i % c.every {
	case 0:
		p.Parent, p.Comm, p.Role, p.Anon = 1000, "python", rss.RoleTrainer, 6*rss.GiB
	case 13, 14, 15:
		p.Comm, p.Role, p.Anon = "sleep", rss.RoleOther, rss.MiB
	}
	p.RSS = p.Anon + p.File + p.Shmem
	return p
}

func (c *scene) counts(id rss.ProcID) (maps, fds int) {
	return 400 + c.n/10%7 + id.PID%50, 30
}

// page is so many pages at most.
func (c *scene) pages(most int) rss.Bytes { return rss.Bytes(c.rnd.IntN(most)) * 4 * rss.KiB }

// at moves on to a moment and returns what is seen. It is overwritten by the next.
func (c *scene) at(at time.Duration) *record.Look {
	l := &c.look
	l.At = at
	c.n++
	var sum rss.Bytes
	procs := l.Sample.Procs
	for i := range procs {
		p := &procs[i]
		switch p.Role {
		case rss.RoleTrainer:
			p.Anon = 6*rss.GiB + c.pages(8192)
			p.Shmem = 200*rss.MiB + c.pages(2048)
		case rss.RoleWorker:
			p.Anon = 240*rss.MiB + c.pages(1024)
			if p.File += c.pages(256); p.File > 2*rss.GiB {
				p.File = 90 * rss.MiB // trimmed
			}
		}
		p.RSS = p.Anon + p.File + p.Shmem
		if c.n%30 == i%30 {
			p.PSS = &rss.PSS{PSS: p.Anon + p.File/12, RSS: p.RSS, At: at}
		}
		sum += p.RSS
	}
	if c.n%replaceEvery == 0 {
		if k := 1 + c.n/replaceEvery%12; k%c.every != 0 {
			procs[k] = c.proc(k)
		}
	}
	eta := float64(3600 - c.n%3600)
	for i := range l.Limits[:3] {
		m := &l.Limits[i]
		m.Used, m.UsedMax = sum, sum
		if i == 0 {
			m.Charged, m.WorkingSet, m.ETA = sum+10*rss.GiB+c.pages(1024), sum+c.pages(1024), &eta
		}
	}
	l.Limits[3].Used = rss.Bytes(430 + c.n%20)
	return l
}

func fileSize(b *testing.B, dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, record.DataFile))
	must(b, err)
	return info.Size()
}
