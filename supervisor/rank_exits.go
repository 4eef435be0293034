package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// Ranks end together as a rule, within less time than it takes to lead. How they
// ended would be in nobody's record, for the leader's was closed with the first.

// briefRecord is from how long a run on its end is worth a record of its own; a
// shorter one leaves nothing, as ever.
const briefRecord = time.Minute

// beginBriefRecord begins a record where the lead has fallen to us and our command
// has ended before we began to lead: the ends of the ranks are all that is in it.
func (w *watcher) beginBriefRecord() {
	p := &w.peers
	if p.post == nil || !p.post.Leads() || w.runTime() < briefRecord && w.Settings.Record == settings.RecordAuto {
		return
	}
	w.startRecording(w.Link.Begin())
	w.tellRank(event.RankLeads, &p.me, nil)
	w.noteStart()
	_, left, err := p.post.Members()
	if err != nil {
		w.fault("leader", err)
	}
	w.tellRankEnds(left)
}

// tellRankEnds tells of ranks that nobody met, and that said how they ended.
func (w *watcher) tellRankEnds(left []node.Member) {
	for i := range left {
		if m := &left[i]; m.Ended != nil && !w.peers.told[m.Holder] {
			w.tellRankEnd(m, m.Ended)
		}
	}
}

// tellRankEnd tells how a rank ended, nil where it is not known.
func (w *watcher) tellRankEnd(m *node.Member, how *node.Ended) {
	p := &w.peers
	if p.told == nil {
		p.told = map[rss.ProcID]bool{}
	}
	p.told[m.Holder] = true
	w.tellRank(event.RankEnded, m, how)
}
