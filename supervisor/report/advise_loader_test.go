package report

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

func TestAdviceOnLoaders(t *testing.T) {
	usage := func(anon, file, shmem, pss func(x float64) float64) func(float64) record.Usage {
		return func(x float64) record.Usage {
			return record.Usage{Anon: gb(anon(x)), File: gb(file(x)), Shmem: gb(shmem(x)), PSS: gb(pss(x))}
		}
	}
	is := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	rises := func(from, to float64) func(float64) float64 {
		return func(x float64) float64 { return from + (to-from)*x }
	}
	// levels is up after a tenth of the run.
	levels := func(to float64) func(float64) float64 { return func(x float64) float64 { return min(to, to*10*x) } }
	pss := func(size float64) event.Limit {
		l := slurmRSS(size)
		l.Accounting = event.AccountingPSS
		return l
	}
	fine, tight, oom := ended(0, event.VerdictFine), ended(0, event.VerdictTight), killedBy("SIGKILL", event.VerdictOOM)
	const (
		fewer   = "num_workers="
		fresh   = "persistent_workers=False"
		first   = "persistent_workers=True, and the first iter(loader) before the model is made"
		arrays  = "dataset: arrays"
		pinning = "pin_memory=False"
	)
	for _, c := range []struct {
		what string
		made made
		want []string // the lines beside --mem
		says string
	}{
		{"room for all", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), is(0.8), is(0), is(0)), exit: fine}, nil, ""},
		{"four workers near the limit", made{limit: slurmRSS(5.5), workers: 4, worker: usage(is(0.25), is(0.75), is(0), is(0)), exit: tight}, []string{fewer + "3"}, "4 workers had 4.00 GiB of the 5.00 GiB that the limit slurm counted, 1.00 GiB each; with 3 it would have been some 4.00 GiB of 5.50 GiB"},
		{"killed by the kernel", made{limit: cgroupLimit(4), trainer: steady(1, 0, 0), workers: 4, worker: usage(rises(0.1, 0.75), is(0), is(0), is(0)), exit: oom}, []string{fewer + "3", fresh}, "what more they would have taken is not known"},
		{"the workers are not what is large", made{limit: slurmRSS(9), trainer: steady(8, 0, 0), workers: 4, worker: usage(is(0.1), is(0.02), is(0), is(0)), exit: tight}, nil, ""},
		{"one worker", made{limit: slurmRSS(4), trainer: steady(1, 0, 0), workers: 1, worker: usage(is(0.2), is(2.5), is(0), is(0)), exit: tight}, nil, ""},
		{"PSS not read", made{limit: pss(2), workers: 4, worker: usage(is(0.2), is(0.8), is(0), is(0)), used: func(float64) rss.Bytes { return gb(1.9) }, exit: tight}, nil, ""},
		{"mapped pages that grow on", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, []string{fresh}, "4 workers that stayed for most of the run had"},
		{"mapped pages that no limit counts", made{limit: cgroupLimit(16), workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), used: func(float64) rss.Bytes { return gb(2) }, exit: fine}, nil, ""},
		{"mapped pages that level off", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), levels(1.2), is(0), is(0)), exit: fine}, nil, ""},
		{"a leak", made{limit: cgroupLimit(16), workers: 2, worker: usage(rises(0.3, 2), is(0.2), is(0), is(0)), exit: fine}, []string{fresh}, "a cache, a leak, or pages copied on write"},
		{"workers that end with the epoch", made{limit: slurmRSS(16), workers: 4, fresh: 5, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, nil, ""},
		{"born with the trainer's memory", made{limit: slurmRSS(16), trainer: steady(2, 0, 0), workers: 6, worker: usage(is(1.9), is(0.1), is(0), is(0)), exit: tight}, []string{fewer + "5", first}, "each forked worker begins with the trainer's memory, 1.90 GiB of 2.00 GiB, and the limit slurm counts that for each of 6: 11.4 GiB"},
		{"born small", made{limit: slurmRSS(16), trainer: steady(2, 0, 0), workers: 6, worker: usage(is(0.9), is(1.1), is(0), is(0)), exit: tight}, []string{fewer + "5"}, ""},
		{"copied on write, by PSS", made{limit: pss(4.2), trainer: usage(is(2), is(0), is(0), is(1)), workers: 4, worker: usage(is(1.9), is(0), is(0), rises(0.4, 0.75)), used: func(x float64) rss.Bytes { return gb(1 + 4*(0.4+0.35*x)) }, exit: tight}, []string{fewer + "3", arrays}, "use rose by 9"},
		{"copied on write, by the charge", made{limit: cgroupLimit(6), trainer: steady(2, 0, 0), workers: 4, worker: usage(is(1.9), is(0), is(0), is(0)), used: func(x float64) rss.Bytes { return gb(2.2 + 3*x) }, exit: tight}, []string{arrays}, "pages that a fork shares are copied"},
		{"the charge rises with what the trainer has", made{limit: cgroupLimit(6), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(2 + 3*x)} }, workers: 4, worker: usage(is(1.9), is(0), is(0), is(0)), used: func(x float64) rss.Bytes { return gb(2.2 + 3*x) }, exit: tight}, nil, ""},
		{"pinned batches that pile up", made{limit: cgroupLimit(16), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(1), Shmem: gb(0.5 + 4*x)} }, exit: fine}, []string{pinning}, "shared memory of the trainer"},
		{"pinned batches that level off", made{limit: cgroupLimit(16), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(1), Shmem: gb(min(2, 20*x))} }, exit: fine}, nil, ""},
		{"too few samples", made{limit: slurmRSS(16), every: time.Hour, workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, nil, ""},
	} {
		lines := Advise([]*record.Run{c.made.run()})
		theMem(t, lines)
		var got []string
		all := ""
		for _, l := range lines[1:] {
			got = append(got, l.Line)
			all += l.Why + " "
			if l.Evidence == "" || l.Mem != 0 || l.Risk != nil {
				t.Errorf("%s: %+v", c.what, l)
			}
		}
		good := len(got) == len(c.want)
		for i := range c.want {
			good = good && strings.HasPrefix(got[i], c.want[i])
		}
		if !good {
			t.Errorf("%s: lines %q, want %q\n%+v", c.what, got, c.want, lines[1:])
		}
		if !strings.Contains(all, c.says) {
			t.Errorf("%s: %q does not say %q", c.what, all, c.says)
		}
	}
}

// TestAdviceOnTheSeed: the post's own conclusion, with its figures.
func TestAdviceOnTheSeed(t *testing.T) {
	lines := Advise([]*record.Run{recordtest.SeedRun()})
	mem := theMem(t, lines)
	if mem.Mem < gb(5.39) || mem.Mem > gb(6.5) || !strings.Contains(mem.Why, "5.39 GiB") {
		t.Errorf("%+v", mem)
	}
	if !strings.Contains(mem.Why, "slower and slower") {
		t.Errorf("of growth over epochs: %q", mem.Why)
	}
	fresh := named(lines, "persistent_workers=False")
	if fresh == nil || !strings.Contains(fresh.Why, "4 workers") || !strings.Contains(fresh.Why, "mapped file pages") {
		t.Errorf("of workers that stay: %+v", lines)
	}
	if len(lines) != 2 {
		t.Errorf("lines %+v", lines)
	}
	for _, l := range lines {
		t.Logf("%s\n  %s\n  %s", l.Line, l.Why, l.Evidence)
	}
}

// TestAdviceOfAJournal: roles tell less than processes, and nothing wrong.
func TestAdviceOfAJournal(t *testing.T) {
	m := made{limit: slurmRSS(5.5), workers: 4, worker: steady(0.2, 0.8, 0), exit: ended(0, event.VerdictTight), journal: true}
	run := m.run()
	var plain []record.Sample
	for s := range run.Samples() {
		c := record.Sample{At: s.At, Limits: append([]record.Reading(nil), s.Limits...)}
		c.Roles = []record.RoleSum{
			{Role: rss.RoleTrainer, Count: 1, Anon: gb(1), RSS: gb(1)},
			{Role: rss.RoleWorker, Count: 4, Anon: gb(0.8), File: gb(3.2), RSS: gb(4)},
		}
		plain = append(plain, c)
	}
	f := &facts{run: run, exit: run.Exit(), told: -1, limits: make([]limitFacts, 1), procs: make([]procFacts, len(run.Procs))}
	for i := range plain {
		f.sample(&plain[i])
	}
	k := kind{words: []string{"python"}, jobs: []job{{runs: []*facts{f}}}}
	lines := adviseKind(&k)
	if l := named(lines, "num_workers=3"); l == nil || len(lines) != 2 {
		t.Errorf("lines %+v", lines)
	}
}

func TestCourse(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, time.Hour} {
		for _, n := range []int{1, 5, 24, 25, 100, 1000} {
			var c course
			var most rss.Bytes
			for i := range n {
				v := rss.Bytes(i * 7919 % 1000)
				most = max(most, v)
				c.add(time.Minute+time.Duration(i)*every, v)
			}
			var top rss.Bytes
			seen := 0
			parts := len(c.most)
			for _, v := range c.most {
				if v >= 0 {
					top = max(top, rss.Bytes(v))
					seen++
				}
			}
			if top != most || c.span() != time.Duration(n-1)*every || parts > courseParts || parts < min(int(c.span()/time.Second), courseParts/2) || seen > n {
				t.Errorf("%d readings each %v: %d parts of %v, highest %v of %v", n, every, parts, c.width, top, most)
			}
		}
	}
}

func TestGrowth(t *testing.T) {
	const n = 200
	for _, c := range []struct {
		what           string
		at             func(x float64) float64 // GiB
		still, slowing bool
	}{
		{"flat", func(float64) float64 { return 4 }, false, false},
		{"falls", func(x float64) float64 { return 4 - x }, false, false},
		{"starts up", func(x float64) float64 { return min(4, 40*x) }, false, false},
		{"linear", func(x float64) float64 { return 2 + 2*x }, true, false},
		{"faster and faster", func(x float64) float64 { return 2 + 2*x*x }, true, false},
		{"slows", func(x float64) float64 { return 4 - 2/(1+6*x) }, true, true},
		{"a saw that rises", func(x float64) float64 { return 2 + 2*x + 0.5*float64(int(x*60)%3) }, true, false},
		{"a saw that does not", func(x float64) float64 { return 2 + 0.5*float64(int(x*60)%3) }, false, false},
		{"one jump", func(x float64) float64 { return 2 + 2*float64(int(x*1.1)) }, false, false},
		{"by little", func(x float64) float64 { return 2 + 0.05*x }, false, false},
	} {
		var s course
		for i := range n {
			s.add(time.Duration(i)*30*time.Second, rss.GiB.Scale(c.at(float64(i)/n)))
		}
		g, ok := s.growth()
		if !ok || g.still != c.still || g.slowing != c.slowing {
			t.Errorf("%s: %+v, %v", c.what, g, ok)
		}
	}
	var back course
	for _, at := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour, -time.Hour} {
		back.add(at, rss.GiB)
	}
	if back.span() != time.Hour {
		t.Errorf("readings that go back span %v", back.span())
	}
	var few course
	for i := range 5 {
		few.add(time.Duration(i)*time.Minute, rss.Bytes(i)*rss.GiB)
	}
	if _, ok := few.growth(); ok {
		t.Error("a growth from 5 readings")
	}
}

// BenchmarkAdvise is of a day at one sample a second with 16 processes.
func BenchmarkAdvise(b *testing.B) {
	run := made{limit: slurmRSS(16), lasts: 24 * time.Hour, every: time.Second, workers: 15, worker: func(x float64) record.Usage {
		return record.Usage{Anon: gb(0.2), File: gb(0.2 + 0.3*x)}
	}, exit: ended(0, event.VerdictFine)}.run()
	for b.Loop() {
		if lines := Advise([]*record.Run{run}); len(lines) == 0 {
			b.Fatal("no advice")
		}
	}
}
