package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// handing is how the record of a node goes on in another rank's.
type handing struct {
	next *look
	at   time.Time // when the next one's watcher took the lead
	lost bool      // the watcher or the holder before was gone, else its rank had ended
	// told says that how the rank of the record ended is known from the next.
	told bool
}

const (
	// handSlack is how much earlier than the end of a record another rank may
	// have taken the lead, by two clocks that are read one after the other.
	handSlack = time.Second
	// withIt is how soon after the last of its record a rank must have ended for
	// the record to tell why.
	withIt = 5 * time.Second
)

// from is when the recording began: a watcher that takes the lead later than its
// rank began records from then on.
func (k *look) from() time.Duration {
	switch {
	case k.ranks.leads >= 0:
		return k.ranks.leads
	case k.first >= 0:
		return k.first
	}
	return 0
}

func (k *look) restarts() int {
	if k.run.Meta.Job == nil {
		return 0
	}
	return k.run.Meta.Job.Restarts
}

// handOver finds which records go on in another one of their node, and gives those
// that break off the end that the next one knows of.
func handOver(looks []*look) {
	var led []*look
	for _, k := range looks {
		if k.ranks.led && k.run.Meta.Job != nil {
			led = append(led, k)
		}
	}
	all := make([]tenure, len(led))
	for i, k := range led {
		all[i] = tenure{
			node: k.run.Meta.Node, restart: k.restarts(), start: k.run.Meta.Start, began: k.wall(k.from()), ended: k.wall(k.end), live: k.run.Live,
		}
		for _, r := range k.ranks.list {
			all[i].ranks = append(all[i].ranks, r.rankKey)
		}
	}
	before := successions(all)
	for i, n := range before {
		first := i
		for before[first] >= 0 {
			first = before[first]
		}
		led[i].line = first + 1
		if n < 0 {
			continue
		}
		a, b := led[n], led[i]
		end, taken := all[n].ended, all[i].began
		h := &handing{next: b, at: taken, lost: a.exit == nil || a.exit.Code == nil && a.exit.Signal == nil}
		a.ranks.handing = h
		if a.exit != nil {
			continue
		}
		r := b.ranks.find(a.ranks.list[0].rankKey)
		if r == nil || !r.known() {
			continue
		}
		if ended := b.wall(r.ended); ended.Sub(end) <= withIt {
			h.told, a.lastSeen = true, a.end
			a.exit = &event.Exit{By: "command", Code: r.code, Signal: r.signal}
			a.exitAt = max(a.end, ended.Sub(a.run.Meta.Start))
			a.end = a.exitAt
			if f := b.ranks.fallen; f != nil && f.lookRank == r {
				b.ranks.fallen = nil // it is told with the record that saw it
			}
		}
	}
}

// LeadChange is one time at which another rank's watcher began to record a node.
type LeadChange struct {
	Node     string `json:"node"`
	Restart  int    `json:"restart,omitempty"`
	FromStep string `json:"from_step,omitempty"`
	From     int    `json:"from_task"`
	ToStep   string `json:"to_step,omitempty"`
	To       int    `json:"to_task"`
	// Time is when the next one took it, Gap the seconds since the last of the
	// record before, in which nobody recorded.
	Time time.Time `json:"time"`
	Gap  float64   `json:"gap_s"`
	// Lost says that the watcher before was gone, or its holder and the watch with it;
	// else its rank had ended.
	Lost bool `json:"lost,omitempty"`
}

func leadChanges(looks []*look, zone *time.Location) (out []LeadChange) {
	for _, k := range looks {
		h := k.ranks.handing
		if h == nil {
			continue
		}
		from, to := k.ranks.list[0], h.next.ranks.list[0]
		end := k.end
		if h.told {
			end = k.lastSeen
		}
		out = append(out, LeadChange{
			Node: k.run.Meta.Node, Restart: k.restarts(), FromStep: from.step, From: from.task, ToStep: to.step, To: to.task,
			Time: h.at.In(zone), Gap: max(h.at.Sub(k.wall(end)).Seconds(), 0), Lost: h.lost,
		})
	}
	slices.SortStableFunc(out, func(a, b LeadChange) int { return a.Time.Compare(b.Time) })
	return out
}
