package view

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestLimit(t *testing.T) {
	v := View{Limits: []event.Limit{
		{Name: event.LimitSlurm, Accounting: event.AccountingVirtual, Used: 9, Limit: 10},
		{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Used: 5, Limit: 10},
	}}
	before := event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Used: 4}
	if l := v.Limit(before.ID()); l != &v.Limits[1] {
		t.Errorf("reading %+v", l)
	}
	v.Limits = v.Limits[:1]
	if l := v.Limit(before.ID()); l != nil {
		t.Errorf("reading %+v", l)
	}
}

func TestGrowing(t *testing.T) {
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS: 1, event.AccountingCgroup: 1, event.AccountingPSS: 2, event.AccountingNoShared: 2,
	} {
		if got := Growing(&event.Limit{Accounting: acc, Used: 1, UsedMax: 2}); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
}

// levels are two levels of one cgroup with these uses; the first is watched.
func levels(step, job rss.Bytes) []event.Limit {
	return []event.Limit{
		{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Level: "/job/step", Used: step, Limit: 64 * rss.GiB, Binding: true},
		{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Level: "/job", Used: job, Limit: 64 * rss.GiB},
	}
}

// TestRates of two levels are apart, go on from one read to the next in whatever order, and
// those of a limit that is gone are forgotten.
func TestRates(t *testing.T) {
	v := new(View).Next(0, rss.Sample{}, levels(2*rss.GiB, 30*rss.GiB))
	two := levels(2*rss.GiB, 31*rss.GiB)
	v = v.Next(time.Second, rss.Sample{}, []event.Limit{two[1], two[0]})
	if step, job := v.Latest(&two[0]), v.Latest(&two[1]); step != 0 || job != float64(rss.GiB) {
		t.Errorf("the step grows by %.0f bytes a second, the job by %.0f; want 0 and 1 GiB", step, job)
	}
	if left := v.TimeLeft(&two[1]); left != 33*time.Second {
		t.Errorf("%v left to 33 GiB more", left)
	}
	if left := v.TimeLeft(&two[0]); left != 0 {
		t.Errorf("%v left where nothing grows", left)
	}
	v = v.Next(2*time.Second, rss.Sample{}, two[:1]).Next(3*time.Second, rss.Sample{}, two)
	if r := v.Rate(&two[1]); r.PerSecond(3*time.Second) != 0 {
		t.Error("the rate of a limit that was gone")
	}
}

// TestFast changes the use of the watched limit, in a view of its own.
func TestFast(t *testing.T) {
	full := new(View).Next(0, rss.Sample{Seq: 7, Procs: []rss.Proc{{State: 'T'}}}, levels(2*rss.GiB, 30*rss.GiB))
	same := full.Fast(time.Second, &levels(2*rss.GiB, 0)[0])
	if !full.Stopped || !same.Stopped {
		t.Error("what is stopped and does not grow is not said to be")
	}
	fast := full.Fast(time.Second, &levels(3*rss.GiB, 0)[0])
	if fast.Limits[0].Used != 3*rss.GiB || fast.From != 2*rss.GiB || fast.Latest(&fast.Limits[0]) != float64(rss.GiB) || fast.Stopped || fast.Now != time.Second || fast.Sample.Seq != 7 {
		t.Errorf("%+v", fast)
	}
	if full.Limits[0].Used != 2*rss.GiB || full.Latest(&full.Limits[0]) != 0 || full.Limits[1] != fast.Limits[1] {
		t.Errorf("the view of the full read has changed: %+v", full)
	}
}

// TestSkip: what has grown while nothing was seen took no known time.
func TestSkip(t *testing.T) {
	v := new(View).Next(0, rss.Sample{}, levels(0, 0)).Skip().Next(time.Second, rss.Sample{}, levels(20*rss.GiB, 20*rss.GiB))
	if r := v.Rates[0]; r.PerSecond(time.Second) != 0 {
		t.Errorf("%.0f bytes a second over a gap", r.PerSecond(time.Second))
	}
}

// family has the command 20 first, and a circle that a torn reading shows.
func family() Lineage {
	var l Lineage
	for _, p := range [][2]int{{20, 5}, {11, 20}, {12, 11}, {30, 12}, {40, 41}, {41, 40}, {50, 1}} {
		l = append(l, rss.Proc{ID: rss.ProcID{PID: p[0]}, Parent: p[1]})
	}
	return l
}

func TestFind(t *testing.T) {
	l := family()
	for i := range l {
		if p := l.Find(l[i].ID.PID); p != &l[i] {
			t.Errorf("%d: %v", l[i].ID.PID, p)
		}
	}
	for _, pid := range []int{0, 5, 13, 99} {
		if p := l.Find(pid); p != nil {
			t.Errorf("%d: %v", pid, p)
		}
	}
	if Lineage(nil).Find(1) != nil {
		t.Error("found in nothing")
	}
}

func TestUp(t *testing.T) {
	for pid, want := range map[int][]int{30: {30, 12, 11, 20, 5}, 50: {50, 1}, 7: {7}} {
		var got []int
		for up, p := range family().Up(pid) {
			if got = append(got, up); (p == nil) != (up == want[len(want)-1]) {
				t.Errorf("%d has the process %v", up, p)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("above %d: %v, want %v", pid, got, want)
		}
	}
	n := 0
	for range family().Up(40) {
		n++
	}
	if n > 10 {
		t.Errorf("%d steps in a circle", n)
	}
}

func TestBelowAndRank(t *testing.T) {
	ranks := map[int]int{11: 1, 20: 0}
	for pid, want := range map[int]struct {
		below bool // of 5, which is not in the sample
		rank  int
	}{30: {true, 1}, 11: {true, 1}, 20: {true, 0}, 5: {false, -1}, 40: {false, -1}, 50: {false, -1}} {
		if got := family().Below(pid, 5); got != want.below {
			t.Errorf("%d below 5: %v", pid, got)
		}
		if got := family().Rank(pid, ranks); got != want.rank {
			t.Errorf("rank of %d: %d, want %d", pid, got, want.rank)
		}
	}
}
