package run

import (
	"cmp"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// lived is a real run, as three have told of it: itself while it ran, its record,
// and a replay of that.
type lived struct {
	dir    string
	events map[event.Name][]map[string]any
	again  replay.Result
}

// mappingJob is the loader of examples/lmdbload over data of its own.
func mappingJob(t *testing.T, epochs string) []string {
	t.Helper()
	dir := t.TempDir()
	load := wardentest.Program(t, wardentest.LMDBLoad)
	line := []string{load, "-data", filepath.Join(dir, "load.lmdb"), "-growth", "60", "-epochs", epochs}
	if _, errs, err := wardentest.Output(append(slices.Clone(line), "-create")...); err != nil {
		t.Fatalf("cannot make the data: %v\n%s", err, errs)
	}
	return line
}

// liveRun runs a job under rsswarden, which records it, and wants that status.
func liveRun(t *testing.T, status int, options, job []string) lived {
	t.Helper()
	r := lived{dir: filepath.Join(t.TempDir(), "records")}
	list := filepath.Join(t.TempDir(), "events")
	args := slices.Concat([]string{"run", "--record", r.dir, "--events", list}, options, []string{"--"}, job)
	cmd := exec.Command(binary, args...)
	cmd.Env = wardentest.Env()
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != status {
		t.Fatalf("%v: %v, want exit status %d\n%s", args, err, status, out)
	}
	r.events = wardentest.Events(t, list)
	r.again = r.replay(t)
	return r
}

func (r lived) replay(t *testing.T, options ...string) replay.Result {
	t.Helper()
	out, errs, err := wardentest.Output(append([]string{binary, "replay", "--json", r.dir}, options...)...)
	var got replay.Result
	if err != nil || errs != "" || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("replay %v: %v %s\n%s", options, err, errs, out)
	}
	return got
}

// same wants the decisions of the replay to be those that the run told of while
// it ran, each within one tick, and that replay knows it.
func (r lived) same(t *testing.T, least int, actions ...event.Action) {
	t.Helper()
	got, told := r.again, r.events[event.NameDecision]
	if got.Estimate || got.Same == nil || !*got.Same || len(got.Missed) > 0 || got.Tick > 1 {
		t.Errorf("estimate %v, same %v, missed %+v, tick %v s", got.Estimate, got.Same, got.Missed, got.Tick)
	}
	if len(got.Decisions) != len(told) || len(told) < least {
		t.Errorf("%d decisions in the replay, %d in the run; want as many, and %d at least", len(got.Decisions), len(told), least)
	}
	type made struct {
		rule, limit string
		at          float64
	}
	var live, again []made
	for _, d := range told {
		at, err := time.Parse(time.RFC3339Nano, d["time"].(string))
		wardentest.NoError(t, err)
		live = append(live, made{d["rule"].(string), d["limit"].(string), at.Sub(got.Start).Seconds()})
	}
	count := map[event.Action]int{}
	for _, d := range got.Decisions {
		again = append(again, made{d.Rule, string(d.Limit), d.At})
		count[d.Action]++
	}
	// Of the decisions by one rule the first is the first, and so on.
	inOrder := func(a, b made) int {
		return cmp.Or(strings.Compare(a.rule, b.rule), strings.Compare(a.limit, b.limit), cmp.Compare(a.at, b.at))
	}
	slices.SortFunc(live, inOrder)
	slices.SortFunc(again, inOrder)
	worst := 0.0
	for i := range min(len(live), len(again)) {
		off := math.Abs(live[i].at - again[i].at)
		worst = max(worst, off)
		if live[i].rule != again[i].rule || live[i].limit != again[i].limit || off > got.Tick {
			t.Errorf("in the run %v, in the replay %v", live[i], again[i])
		}
	}
	for _, a := range actions {
		if count[a] == 0 {
			t.Errorf("no %s was decided: the test proves little", a)
		}
	}
	t.Logf("%.0f s, %d decisions %v, the same in the replay, at most %.3f s apart", got.End, len(told), count, worst)
}

// mappedOptions have pages of a loader dropped from outside, and more rules than
// the ladder has by itself.
var mappedOptions = []string{
	"--limit", "500M", "--accounting", "rss", "--trim", "ptrace",
	"--at", "70%:signal=USR1", "--at", "75%:exec=true", "--at", "free<90M:warn", "--at", "user eta<2m:exec=true",
}

// TestReplayOfALiveRun: with nothing changed a replay decides as the run did; with
// another limit it guesses, and says so.
func TestReplayOfALiveRun(t *testing.T) {
	r := liveRun(t, 0, mappedOptions, mappingJob(t, "3"))
	r.same(t, 12, event.ActionTrim, event.ActionSignal, event.ActionExec, event.ActionWarn)
	r.otherLimits(t)
}

// otherLimits replays the run of a loader with limits far from its own.
func (r lived) otherLimits(t *testing.T) {
	t.Helper()
	trims := func(got replay.Result) (n int, first float64) {
		first = math.Inf(1)
		for _, d := range got.Decisions {
			if d.Action == event.ActionTrim {
				n, first = n+1, min(first, d.At)
			}
		}
		return n, first
	}
	had, began := trims(r.again)
	for _, test := range []struct {
		limit   rss.Bytes
		fits    func(n int, first float64) bool
		becomes []replay.Fate
		says    string
	}{
		{40 * rss.GiB, func(n int, _ float64) bool { return n == 0 }, []replay.Fate{replay.Lives}, "no trim, and lives"},
		{650 * rss.MiB, func(n int, first float64) bool { return n > 0 && n <= had && first > began },
			[]replay.Fate{replay.Lives, replay.Unknown}, "the first trim later"},
		{350 * rss.MiB, func(n int, first float64) bool { return n > 0 && first < began },
			[]replay.Fate{replay.Lives, replay.Dies, replay.Unknown}, "the first trim sooner"},
		{100 * rss.MiB, func(int, float64) bool { return true }, []replay.Fate{replay.Dies}, "dies"},
	} {
		got := r.replay(t, "--limit", strconv.FormatUint(uint64(test.limit/rss.MiB), 10))
		n, first := trims(got)
		t.Logf("with %v: %s, %d trims, the first after %.1f s (in the run %d, after %.1f s); %s", test.limit, got.Fate, n, first, had, began, got.Why)
		if !test.fits(n, first) || !slices.Contains(test.becomes, got.Fate) {
			t.Errorf("with %v: %s with %d trims, the first after %.1f s; want %s", test.limit, got.Fate, n, first, test.says)
		}
		if !got.Estimate || got.Same != nil || !strings.Contains(strings.Join(got.Notes, "\n"), "estimate") {
			t.Errorf("with %v: estimate %v, same %v, notes %q; want an estimate that is called one", test.limit, got.Estimate, got.Same, got.Notes)
		}
	}
}
