// Package recordtest has records for tests of what reads them: a run of which a user's own
// test printed the numbers ([SeedRun]), what each node of a job with many ranks leaves
// behind ([Ranks]), and any record with texts in it that an attacker might choose
// ([Poison]). Numbers that were not measured are marked as such.
package recordtest

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// seed has what a user's test printed, and the samples that are made of it.
//
//go:embed seed.txt
var seed string

// The times of the seed, which are ours. Batch 0 comes late, when the workers have begun to read.
const (
	// PerBatch is the time from one batch to the next.
	PerBatch = 4 * time.Second
	// FirstBatch is the time from the start of an epoch to its batch 0.
	FirstBatch = 10 * time.Second
	// PerEpoch is the time from the start of one epoch to that of the next.
	PerEpoch = FirstBatch + 8*PerBatch + 2*time.Second
)

// SeedRun returns the seed as a record of a run without actions that ended well. Its --limit of
// 16 GiB is ours; no rule fires below it.
func SeedRun() *record.Run {
	command := []string{"python", "-m", "pytest", "test_rss.py"}
	start := time.Date(2021, 3, 1, 9, 0, 0, 0, time.UTC)
	limit := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Enforcer: "rsswarden's own rules", LimitSource: "--limit"}
	b := record.NewBuilder(record.Meta{
		V: record.Version, ID: "20210301T090000Z-seed-14023", Node: "seed", Start: start, Version: "test",
		Command: command, Process: rss.ProcID{PID: 14023, Start: 1},
	})
	b.Limit(limit)
	for i, pid := range []int{14023, 14055, 14071, 14087, 14103} {
		p := record.Proc{ID: rss.ProcID{PID: pid, Start: uint64(1 + i)}, Parent: 14023, Comm: "python", Role: rss.RoleWorker}
		if i == 0 {
			p.Parent, p.Role = 1, rss.RoleTrainer
		}
		b.Proc(p)
	}
	limit.Limit = 16 * rss.GiB
	var peak rss.Bytes
	for line := range strings.Lines(seed) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var seconds, sum int
		var procs [5]record.Usage
		to := []any{&seconds, &sum}
		for i := range procs {
			procs[i].Proc = i
			to = append(to, &procs[i].Anon, &procs[i].File)
		}
		if _, err := fmt.Sscan(strings.ReplaceAll(line, "+", " "), to...); err != nil {
			panic("internal error: the seed has a line that is no sample: " + line)
		}
		for i := range procs {
			procs[i].Anon, procs[i].File = procs[i].Anon*rss.KiB, procs[i].File*rss.KiB
		}
		used := rss.Bytes(sum) * rss.KiB
		if peak == 0 {
			first := limit
			first.Used = used
			b.Event(record.Entry{Name: event.NameStart, Value: &event.Start{
				Head: event.Head{V: event.Version, Time: start, Seq: 1, Event: event.NameStart}, Command: command, PID: 14023, Version: "test",
				Settings: []event.Setting{{Name: "limit", Value: "16G", Origin: "flag"}, {Name: "interval", Value: "1s", Origin: "default"}},
				Rules:    []string{"80%:warn", "eta<10m:warn", "85%:trim", "90%:recycle"},
				Limits:   []event.Limit{first},
			}})
		}
		peak = max(peak, used)
		b.Sample(&record.Sample{
			At: time.Duration(seconds) * time.Second, Procs: procs[:],
			Limits: []record.Reading{{Used: used, UsedMax: used, Size: limit.Limit, ETA: -1, Binding: true}},
		})
	}
	limit.Used = peak
	status := 0
	b.Event(record.Entry{At: 3 * PerEpoch, Name: event.NameExit, Value: &event.Exit{
		Head: event.Head{V: event.Version, Time: start.Add(3 * PerEpoch), Seq: 2, Event: event.NameExit}, By: "command", Code: &status,
		Peaks: event.Peaks{RSS: &peak}, Binding: &limit, Brief: event.Brief{Outcome: event.RunOK, Watched: event.WatchedAll},
	}})
	return b.Run()
}
