package torch

import (
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// trained is what a small training under rsswarden came to.
type trained struct {
	sum, stderr string
	outcomes    map[event.Action][]map[string]any // that were OK
	limit       map[string]any                    // nearest to its limit
	exit        map[string]any
}

// trainUnder runs a training of 80 MB with two workers under rsswarden.
func trainUnder(t *testing.T, data string, options, rules []string) trained {
	t.Helper()
	list := filepath.Join(t.TempDir(), "events")
	args := append([]string{binary, "run", "--events", list, "--accounting", "noshared"}, rules...)
	args = append(args, "--", python, "../../../../examples/train/train.py", "--data", data, "--records", "4000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "2")
	out, errs, err := wardentest.Output(append(args, options...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	r := trained{sum: wardentest.Checksum(out), stderr: errs, outcomes: map[event.Action][]map[string]any{}}
	all := wardentest.Events(t, list)
	actions := map[any]event.Action{}
	for _, d := range all[event.NameDecision] {
		actions[d["id"]] = event.Action(d["action"].(string))
	}
	for _, o := range all[event.NameOutcome] {
		if a := actions[o["decision"]]; o["ok"] == true {
			r.outcomes[a] = append(r.outcomes[a], o)
		}
	}
	r.exit = all[event.NameExit][0]
	r.limit, _ = r.exit["binding"].(map[string]any)
	return r
}

// TestRungsOnATraining: the rungs that go through the hook, on a real PyTorch
// training, whose checksum they leave as it is.
func TestRungsOnATraining(t *testing.T) {
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "train.lmdb")
	want := trainUnder(t, data, nil, []string{"--at", "none"})

	// Cycles of 2 MiB a batch with Python's collector off: 500 MiB in all.
	t.Run("gc", func(t *testing.T) {
		garbage := []string{"--garbage", "2048"}
		// It lasts little more than a second: looks each second miss its peak.
		bare := trainUnder(t, data, garbage, []string{"--limit", "4G", "--at", "none", "--interval", "100ms"})
		run := trainUnder(t, data, garbage, []string{"--limit", "600M", "--at", "none", "--at", "80%:gc"})
		peak := func(r trained) rss.Bytes {
			return rss.Bytes(r.exit["peaks"].(map[string]any)["noshared_bytes"].(float64))
		}
		t.Logf("bare peak %v, with gc %v\n%s", peak(bare), peak(run), wardentest.Said(run.stderr))
		if peak(bare) < 600*rss.MiB {
			t.Errorf("bare peak %v: the test proves nothing", peak(bare))
		}
		if peak(run) >= 600*rss.MiB || run.sum != want.sum || len(run.outcomes[event.ActionGC]) == 0 {
			t.Errorf("peak %v, checksum %s, want %s; %d times gc\n%s", peak(run), run.sum, want.sum, len(run.outcomes[event.ActionGC]), run.stderr)
		}
		for _, o := range run.outcomes[event.ActionGC] {
			if o["freed_bytes"].(float64) < float64(16*rss.MiB) || o["paused_s"] == nil {
				t.Errorf("outcome %v", o)
			}
		}
	})

	// A fresh worker counts what its trainer has: two of them fit into the room
	// of the one run and not of the other.
	for mode, rules := range map[event.Mode][]string{
		event.Swap:  {"--limit", "4G", "--at", "none", "--at", "18%:recycle"},
		event.Drain: {"--limit", "800M", "--at", "none", "--at", "85%:recycle"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			run := trainUnder(t, data, []string{"--leak-worker", "150"}, rules)
			t.Logf("%v\n%s", run.outcomes[event.ActionRecycle], wardentest.Said(run.stderr))
			if run.sum != want.sum || len(run.outcomes[event.ActionRecycle]) == 0 {
				t.Errorf("checksum %s, want %s; %d recycles\n%s", run.sum, want.sum, len(run.outcomes[event.ActionRecycle]), run.stderr)
			}
			for _, o := range run.outcomes[event.ActionRecycle] {
				wardentest.Has(t, o, "detail", string(mode))
			}
		})
	}
}
