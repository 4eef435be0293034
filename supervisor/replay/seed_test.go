package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
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
	for _, p := range recordtest.SeedPrints() {
		epochs[p.Epoch] = max(epochs[p.Epoch], p.Sum)
	}
	if gb(epochs[0]) != "4.95" || gb(epochs[1]) != "5.26" || gb(epochs[2]) != "5.39" {
		t.Errorf("peaks by epoch %v", epochs)
	}
}

// TestSeedWithFive: 5 GB and nobody who acts end the job in the second epoch,
// between batches 4 and 8; and every accounting but RSS is not there.
func TestSeedWithFive(t *testing.T) {
	at := recordtest.PerEpoch + recordtest.FirstBatch + 8*recordtest.PerBatch
	for _, which := range []event.LimitName{"", event.LimitUser} {
		r := play(t, replay.Options{Limit: 5 * rss.GiB, Which: which, Accounting: event.AccountingRSS, Rules: []event.Rule{}})
		if r.Fate != replay.Dies || !r.Estimate || r.Same != nil || r.Death == nil {
			t.Fatalf("%+v", r)
		}
		if d := r.Death; d.At != at.Seconds() || gb(d.Used) != "5.26" || d.Size != 5*rss.GiB || d.Limit != event.LimitUser {
			t.Errorf("death %+v, want it after %v", d, at)
		}
	}
	for _, opt := range []replay.Options{{Accounting: event.AccountingCgroup}, {Which: event.LimitSlurm}} {
		if r, err := replay.Replay(recordtest.SeedRun(), opt); err == nil {
			t.Errorf("%+v: %+v", opt, r)
		}
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
	stop, err := event.ParseRule("95%:stop")
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, replay.Options{Limit: 3 * rss.GiB, Rules: append(policy.Default(), stop)})
	if r.Fate != replay.Dies || r.Death == nil {
		t.Fatalf("%+v", r)
	}
}
