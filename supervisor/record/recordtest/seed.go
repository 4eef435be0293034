// Package recordtest has records for tests of what reads them: a run of which a user's own
// test printed the numbers ([SeedRun]), what each node of a job with many ranks leaves
// behind ([Ranks]), and any record with texts in it that an attacker might choose
// ([Poison]). Numbers that were not measured are marked as such.
package recordtest

import (
	_ "embed"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// seed is what a user's test printed of a PyTorch trainer with four loader
// workers that read a memory-mapped LMDB file, over three epochs of which it
// looked at batches 0, 4 and 8. Its GB is 2^30 bytes.
//
//go:embed seed.txt
var seed string

// The times are ours: the post prints none. A batch there is 32 pairs of clips of
// 32 frames, decoded and scaled by four workers: some seconds. Batch 0 comes
// later, when the workers have begun to read.
const (
	// PerBatch is the time from one batch to the next.
	PerBatch = 4 * time.Second
	// FirstBatch is the time from the start of an epoch to its batch 0.
	FirstBatch = 10 * time.Second
	// PerEpoch is the time from the start of one epoch to that of the next.
	PerEpoch = FirstBatch + 8*PerBatch + 2*time.Second
)

// SeedLimit is the --limit of the run, which is ours too: the post has none. No
// rule fires below it.
const SeedLimit = 16 * rss.GiB

// SeedStart is when the run began, at a time of ours.
var SeedStart = time.Date(2021, 3, 1, 9, 0, 0, 0, time.UTC)

// SeedPrint is one moment that the post prints.
type SeedPrint struct {
	At    time.Duration
	Epoch int
	Batch int               // -1 for the line before an epoch
	Sum   rss.Bytes         // of RSS, as printed
	Procs map[int]rss.Bytes // RSS by PID as printed; nil before an epoch
}

// SeedPrints returns what the post prints, by time.
func SeedPrints() []SeedPrint {
	var all []SeedPrint
	procs := map[int]rss.Bytes{}
	for line := range strings.Lines(seed) {
		var epoch, batch, pid int
		var size string
		line = strings.TrimSpace(line)
		if n, _ := fmt.Sscanf(line, "[e%d][b%d][%d] consumes %s GB", &epoch, &batch, &pid, &size); n == 4 {
			procs[pid] = gib(size)
		} else if n, _ := fmt.Sscanf(line, "[e%d][b%d] RSS: %s GB", &epoch, &batch, &size); n == 3 {
			at := time.Duration(epoch)*PerEpoch + FirstBatch + time.Duration(batch)*PerBatch
			all = append(all, SeedPrint{at, epoch, batch, gib(size), procs})
			procs = map[int]rss.Bytes{}
		} else if n, _ := fmt.Sscanf(line, "[e%d] RSS: %s GB", &epoch, &size); n == 2 {
			all = append(all, SeedPrint{time.Duration(epoch) * PerEpoch, epoch, -1, gib(size), nil})
		} else {
			panic("internal error: the seed has a line that was not printed: " + line)
		}
	}
	return all
}

// gib reads a size that was printed with two digits, in whole KiB.
func gib(s string) rss.Bytes {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("internal error: the seed has a size that is none: " + s)
	}
	return rss.GiB.Scale(v) / rss.KiB * rss.KiB
}

// SeedRun returns the seed as a record of a run without actions that ended well.
// Beside times and limit this is ours:
//
//   - The post rounds each size to 0.01 GB, so its sums differ from its parts by up
//     to 0.02. The sums are kept, and the difference is shared among the processes.
//   - Before an epoch only the sum is printed. The trainer is taken to have what it
//     has all along, and the rest is shared among the workers in proportion to what
//     they had, before the first epoch to what they have next.
//   - What is mapped from files is not printed. The trainer is taken to have none,
//     and a worker all that it has above what the least of them ever has.
func SeedRun() *record.Run {
	prints := SeedPrints()
	const trainer = 14023
	least := rss.Bytes(1 << 62)
	for i := range prints {
		p := &prints[i]
		if p.Procs == nil {
			from := i - 1
			if from < 0 {
				from = 1
			}
			workers := maps.Clone(prints[from].Procs)
			own := workers[trainer]
			delete(workers, trainer)
			p.Procs = share(workers, p.Sum-own)
			p.Procs[trainer] = own
		}
		p.Procs = share(p.Procs, p.Sum)
		for _, size := range p.Procs {
			least = min(least, size)
		}
	}
	start := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Enforcer: "rsswarden's own rules", LimitSource: "--limit"}
	b := record.NewBuilder(record.Meta{
		V: record.Version, ID: "20210301T090000Z-seed-14023", Node: "seed", Start: SeedStart, Version: "test",
		Command: []string{"python", "-m", "pytest", "test_rss.py"}, Process: rss.ProcID{PID: trainer, Start: 1},
	})
	b.Limit(start)
	index := map[int]int{}
	pids := []int{14023, 14055, 14071, 14087, 14103}
	for i, pid := range pids {
		p := record.Proc{ID: rss.ProcID{PID: pid, Start: uint64(1 + i)}, Parent: trainer, Comm: "python", Role: rss.RoleWorker}
		if pid == trainer {
			p.Parent, p.Role = 1, rss.RoleTrainer
		}
		index[pid] = b.Proc(p)
	}
	first := start
	first.Used, first.Limit = prints[0].Sum, SeedLimit
	b.Event(record.Entry{Name: event.NameStart, Value: &event.Start{
		Head: head(0, event.NameStart, 1), Command: []string{"python", "-m", "pytest", "test_rss.py"}, PID: trainer, Version: "test",
		Settings: []event.Setting{{Name: "limit", Value: "16G", Origin: "flag"}, {Name: "interval", Value: "1s", Origin: "default"}},
		Rules:    []string{"80%:warn", "eta<10m:warn", "85%:trim", "90%:recycle"},
		Limits:   []event.Limit{first},
	}})
	var peak rss.Bytes
	for _, p := range prints {
		s := record.Sample{At: p.At, Limits: []record.Reading{{Used: p.Sum, UsedMax: p.Sum, Size: SeedLimit, ETA: -1, Binding: true}}}
		for _, pid := range pids {
			u := record.Usage{Proc: index[pid], Anon: p.Procs[pid]}
			if pid != trainer {
				u.Anon, u.File = least, p.Procs[pid]-least
			}
			s.Procs = append(s.Procs, u)
		}
		peak = max(peak, p.Sum)
		b.Sample(&s)
	}
	end, status := 3*PerEpoch, 0
	first.Used = peak
	b.Event(record.Entry{At: end, Name: event.NameExit, Value: &event.Exit{
		Head: head(end, event.NameExit, 2), By: "command", Code: &status, Peaks: event.Peaks{RSS: &peak}, Binding: &first, Brief: event.Brief{Outcome: event.RunOK, Watched: event.WatchedAll},
	}})
	return b.Run()
}

func head(at time.Duration, name event.Name, seq uint64) event.Head {
	return event.Head{V: event.Version, Time: SeedStart.Add(at), Seq: seq, Event: name}
}

// share spreads the difference to a sum over the processes, in proportion and in
// whole KiB.
func share(procs map[int]rss.Bytes, sum rss.Bytes) map[int]rss.Bytes {
	var all, given rss.Bytes
	most := 0
	for pid, size := range procs {
		all += size
		if size > procs[most] || size == procs[most] && pid < most {
			most = pid
		}
	}
	out := make(map[int]rss.Bytes, len(procs))
	for pid, size := range procs {
		out[pid] = size.Scale(sum.Of(all)) / rss.KiB * rss.KiB
		given += out[pid]
	}
	out[most] += sum - given
	return out
}
