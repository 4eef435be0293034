package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

func gb(b rss.Bytes) string { return fmt.Sprintf("%.2f", float64(b)/float64(rss.GiB)) }

// play replays the seed.
func play(t *testing.T, opt replay.Options) *replay.Result {
	t.Helper()
	r, err := replay.Replay(recordtest.SeedRun(), opt)
	must(t, err)
	var text bytes.Buffer
	must(t, r.WriteText(&text))
	t.Logf("\n%s", text.String())
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if r.Estimate != strings.Contains(text.String(), "note: the limit or the rules are not those of the record") {
		t.Error("an estimate is not called one")
	}
	return r
}

// TestSeedAsRecorded: peak and growth are the post's.
func TestSeedAsRecorded(t *testing.T) {
	r := play(t, replay.Options{})
	if r.Same == nil || !*r.Same || r.Estimate || r.Fate != replay.Lives || len(r.Decisions) > 0 {
		t.Errorf("%+v", r)
	}
	if gb(r.Limit.Peak) != "5.39" || r.Limit.Name != event.LimitUser || r.Limit.Accounting != event.AccountingRSS {
		t.Errorf("limit %+v, want a peak of 5.39 GB", r.Limit)
	}
	if l := r.Least[0]; l.Way != replay.AsRecorded || l.Estimate || policy.MemArg(l.Mem) != "5520M" || l.AtLeast {
		t.Errorf("least %+v, want the first whole MiB above 5.39 GB", l)
	}
	epochs := map[int]rss.Bytes{}
	for s := range recordtest.SeedRun().Samples() {
		epoch := int(s.At / recordtest.PerEpoch)
		epochs[epoch] = max(epochs[epoch], s.Limits[0].Used)
	}
	if gb(epochs[0]) != "4.95" || gb(epochs[1]) != "5.26" || gb(epochs[2]) != "5.39" {
		t.Errorf("peaks by epoch %v", epochs)
	}
}

// TestSeedWithFive: with 5 GB and without actions the job ends in the second epoch,
// between batches 4 and 8; only the accounting by RSS is there.
func TestSeedWithFive(t *testing.T) {
	at := recordtest.PerEpoch + recordtest.FirstBatch + 8*recordtest.PerBatch
	r := play(t, replay.Options{Limit: 5 * rss.GiB, Accounting: event.AccountingRSS, Rules: []event.Rule{}})
	if r.Fate != replay.Dies || !r.Estimate || r.Same != nil || r.Death == nil {
		t.Fatalf("%+v", r)
	}
	if d := r.Death; d.At != at.Seconds() || gb(d.Used) != "5.26" || d.Size != 5*rss.GiB || d.Limit != event.LimitUser {
		t.Errorf("death %+v, want it after %v", d, at)
	}
	if r, err := replay.Replay(recordtest.SeedRun(), replay.Options{Accounting: event.AccountingCgroup}); err == nil {
		t.Errorf("%+v", r)
	}
}

// TestSeedWithFiveAndLadder: the default ladder warns in the first epoch at 4.07
// GB, and its trim at batch 8 there keeps the job inside, by the model.
func TestSeedWithFiveAndLadder(t *testing.T) {
	r := play(t, replay.Options{Limit: 5 * rss.GiB})
	if r.Fate != replay.Lives || !r.Estimate {
		t.Fatalf("%+v", r)
	}
	first := func(rule string) float64 {
		i := slices.IndexFunc(r.Rungs, func(g replay.Rung) bool { return g.Rule == rule })
		if i < 0 || r.Rungs[i].First == nil {
			t.Fatalf("%s never fired: %+v", rule, r.Rungs)
		}
		return *r.Rungs[i].First
	}
	if got := first("80%:warn"); got != recordtest.FirstBatch.Seconds() {
		t.Errorf("80%%:warn first after %v s", got)
	}
	if got := first("85%:trim"); got != (recordtest.FirstBatch + 8*recordtest.PerBatch).Seconds() {
		t.Errorf("85%%:trim first after %v s", got)
	}
	for _, d := range r.Decisions {
		if d.Recorded != nil || d.Action == event.ActionTrim && d.Freed == 0 {
			t.Errorf("%+v", d)
		}
	}
	// Without the ladder the peak itself is the least, with it less.
	if len(r.Least) != 3 || r.Least[1].Mem != r.Least[0].Mem || !r.Least[2].Estimate || r.Least[2].Mem >= r.Least[0].Mem || r.Least[2].Mem == 0 {
		t.Errorf("least %+v", r.Least)
	}
}

// TestSeedWithFour: no ladder can carry it there.
func TestSeedWithFour(t *testing.T) {
	r := play(t, replay.Options{Limit: 3 * rss.GiB, Rules: append(policy.Default(), ladder(t, "95%:stop")...)})
	if r.Fate != replay.Dies || r.Death == nil {
		t.Fatalf("%+v", r)
	}
}

// TestHostileRecords: with any content of a record's fields, a replay of it for people
// lets none of it steer a terminal.
func TestHostileRecords(t *testing.T) {
	const length = 2 * time.Minute
	run := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 1, Count: 1, Start: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), To: length, Workers: 2,
		Limit: 4 * rss.GiB, Share: recordtest.Rising(length, 0.3, 0.95), Recycles: []time.Duration{length / 2}, Exit: recordtest.Ended(0, "", event.RunKept),
	}.Run()
	done := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		res, err := replay.Replay(run, replay.Options{Limit: 3 * rss.GiB})
		if err != nil {
			for _, line := range recordtest.Shows(err.Error()) {
				t.Logf("%q: the error is for the command to clean: %.100q", kind, line)
			}
			return
		}
		done++
		var b bytes.Buffer
		must(t, res.WriteText(&b))
		if bad := recordtest.Shows(b.String()); len(bad) > 0 {
			t.Errorf("%q: %.300q", kind, bad[0])
		}
	}, run)
	if done < 20 {
		t.Errorf("only %d replays", done)
	}
}

// TestCountsAreNoBytes: a decision on a count is printed as a count, also in a record.
func TestCountsAreNoBytes(t *testing.T) {
	for _, recorded := range []*replay.Recorded{nil, {ID: 3, Used: 15000}} {
		b, err := json.Marshal([]replay.Decision{{Rule: "fds 80%:warn", Limit: event.LimitFDs, Used: 16299, Size: 20000, Recorded: recorded}})
		must(t, err)
		if text := string(b); strings.Contains(text, "_bytes") || !strings.Contains(text, `"used":16299,"limit_count":20000,"recorded":`) {
			t.Errorf("%s", text)
		}
	}
	b, err := json.Marshal(replay.Decision{Limit: event.LimitCgroup, Used: 5, Size: 6, Recorded: &replay.Recorded{Used: 5}})
	if err != nil || strings.Count(string(b), `"used_bytes":5`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}
