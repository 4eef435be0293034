package nodejobs

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// news is what the kernel told of one step, as a look takes it in.
type news struct {
	stepSeen
	at          time.Time
	base, kills uint64 // by the step's counters, before it was seen and at least by now
}

// nodeKills is what is known of kills on the node, and whose they may be.
type nodeKills struct {
	kills   uint64 // by the node's count, as of the last look
	blind   bool   // that is not to be had
	changed bool   // it has changed since the look before, or is not known
	killed  bool   // … or had in the look before

	open   []news // what may be a kill or not
	seen   uint64 // kills of jobs that were counted in this look
	left   uint64 // kills on the node that are no job's so far
	leftAt time.Time
	doubt  bool    // the last look left kills that are nobody's
	lately []Ended // the last that ended
}

// lost is a step that is gone and that had kills: by its counter, and since we came.
type lost struct{ all, ours uint64 }

// collect returns what came since the last time, and takes in the node's count.
func (n *notices) collect(kills uint64, ok bool) []news {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ok {
		n.counted(kills)
	}
	var list []news
	for _, t := range n.news {
		t.queued = false
		at := t.heardAt
		if at.IsZero() {
			at = n.rose
		}
		list = append(list, news{stepSeen: t.stepSeen, at: at, base: t.base, kills: t.base + t.kills})
	}
	n.news = nil
	return list
}

// unheard counts the steps of which the kernel does not tell, and says why.
func (n *notices) unheard(jobs []*dir) (steps int, why error) {
	if n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		why = n.refused
	}
	for _, j := range jobs {
		var at *watchedDir
		if n != nil {
			at = n.jobAt(j.path)
		}
		for _, c := range j.kids {
			if c.group == nil || !c.group.use.Measured {
				continue
			}
			if at == nil || at.kids[c.name] == nil || !at.kids[c.name].ooms.armed {
				steps++
			}
		}
	}
	return steps, why
}

// jobAt finds a job.
func (n *notices) jobAt(path string) *watchedDir {
	s := n.root
	for name := range below(n.root.path, path) {
		if s = s.kids[name]; s == nil {
			return nil
		}
	}
	return s
}

// below yields the names on the way down.
func below(from, to string) func(func(string) bool) {
	rel, err := filepath.Rel(from, to)
	if err != nil || rel == "." {
		rel = ".."
	}
	return strings.SplitSeq(rel, "/")
}

// find finds a directory that is followed.
func (d *dir) find(path string) *dir {
	for name := range below(d.path, path) {
		i := slices.IndexFunc(d.kids, func(c *dir) bool { return c.name == name })
		if i < 0 {
			return nil
		}
		d = d.kids[i]
	}
	return d
}

// note has the kills of a step stand in its directory or, where all are listed and it is
// not among them, its job's, which it returns; nil for one that is not followed.
func (n *Node) note(t *news, listed bool) (job *dir) {
	for _, tree := range n.trees {
		if job = tree.root.find(t.jobPath); job != nil {
			break
		}
	}
	if job == nil || job.ino != t.jobIno {
		return nil
	}
	if job.group != nil {
		job.group.by = worse(job.group.by, t.by)
	}
	for _, c := range job.kids {
		if c.path == t.path {
			c.told = max(c.told, t.kills)
			return job
		}
	}
	if listed {
		job.lose(t.step, lost{t.kills, t.kills - min(t.kills, t.base)})
	}
	return job
}

// maxLost bounds what is kept of a job's steps that are gone.
const maxLost = 1024

// lose keeps the kills of a step that is gone.
func (d *dir) lose(step string, l lost) {
	if d.lost == nil {
		d.lost = map[string]lost{}
	}
	if was, ok := d.lost[step]; !ok && len(d.lost) >= maxLost {
		d.gone += l.all
	} else if l.all > was.all {
		d.lost[step] = l
	}
}

// Bounds on what is kept of what is over.
const (
	settled   = 2 * time.Second
	maxLately = 256
)

// conclude takes what the kernel told into a snapshot, as far as no directory that is
// followed has it. What was not counted is taken for a kill where the node's count has one
// that is no other job's.
func (n *Node) conclude(snap *Snapshot, fresh []news, now time.Time) {
	if snap.Kills > 0 {
		n.left, n.leftAt = n.left+snap.Kills, now
	}
	n.explain()
	if now.Sub(n.leftAt) > settled {
		n.left = 0
	}
	var open []news
	for _, t := range append(n.open, fresh...) {
		if t.by == ByCounter {
			n.accuse(snap, &t, now)
		} else {
			open = append(open, t)
		}
	}
	n.open = nil
	for i := range open {
		t := &open[i]
		if t.by == ByEnd && slices.ContainsFunc(open, func(o news) bool { return o.jobPath != t.jobPath }) {
			continue // of several that ended together none is accused
		}
		switch {
		case n.left > 0 || n.blind:
			t.kills++
			n.accuse(snap, t, now)
		case now.Sub(t.at) < settled:
			n.open = append(n.open, *t)
		}
	}
	n.doubt = n.left > 0 && snap.Kills > 0
	n.lately = append(n.lately, snap.Ended...)
	n.lately = n.lately[max(0, len(n.lately)-maxLately):]
}

// explain takes what was counted in jobs from what is left of the node's kills.
func (n *Node) explain() {
	n.left -= min(n.left, n.seen)
	n.seen = 0
}

// accuse has a job of a snapshot have the kills that are known of its step.
func (n *Node) accuse(snap *Snapshot, t *news, now time.Time) {
	ours := t.kills - min(t.kills, t.base)
	if at := n.note(t, true); at != nil {
		if at.group == nil {
			return
		}
		n.tally(at)
		for i := range snap.Jobs {
			if j := &snap.Jobs[i]; j.path == t.jobPath {
				n.takeKills(at, j)
			}
		}
		n.explain()
		return
	}
	same := func(e Ended) bool { return e.path == t.jobPath && e.ino == t.jobIno }
	i := slices.IndexFunc(snap.Ended, same)
	if i < 0 {
		e := Ended{Unseen: true, Last: now, Job: Job{
			ID: t.job, Node: t.node, UID: t.uid, path: t.jobPath, ino: t.jobIno,
			Use: Use{Measured: true, Limit: t.limit, Charged: t.used, Since: t.since},
		}}
		if k := slices.IndexFunc(n.lately, same); k >= 0 {
			if e = n.lately[k]; e.stepKills(t.step) >= ours {
				return // told
			}
			e.Steps, e.Over = slices.Clone(e.Steps), slices.Clone(e.Over)
		}
		snap.Ended = append(snap.Ended, e)
		i = len(snap.Ended) - 1
	}
	j := &snap.Ended[i].Job
	j.KilledBy = worse(j.KilledBy, t.by)
	n.left -= min(n.left, j.atLeast(t.step, ours))
}

// stepKills are the kills of a step.
func (j *Job) stepKills(id string) uint64 {
	if s := j.step(id); s != nil {
		return s.OOMKills
	}
	return 0
}

// step finds a step, one that is gone too.
func (j *Job) step(id string) *Step {
	for _, list := range [][]Step{j.Steps, j.Over} {
		for i := range list {
			if list[i].ID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// atLeast raises the kills of a step and its job, and returns by how many.
func (j *Job) atLeast(id string, kills uint64) (more uint64) {
	s := j.step(id)
	if s == nil {
		j.Over = append(j.Over, Step{ID: id})
		s = &j.Over[len(j.Over)-1]
	}
	more = kills - min(kills, s.OOMKills)
	s.OOMKills += more
	j.OOMKills += more
	return more
}

// takeKills has a job and its steps have the kills of their directories, and counts what
// is new.
func (n *Node) takeKills(d *dir, j *Job) {
	g := d.group
	j.OOMKills = g.use.OOMKills
	for _, c := range d.kids {
		if c.group == nil || c.group.use.OOMKills == 0 {
			continue
		}
		if s := j.step(c.id); s != nil {
			s.OOMKills = max(s.OOMKills, c.group.use.OOMKills)
		}
	}
	j.Over = nil
	for _, id := range slices.Sorted(maps.Keys(d.lost)) {
		if ours := d.lost[id].ours; ours > 0 {
			j.Over = append(j.Over, Step{ID: id, Use: Use{OOMKills: ours}})
		}
	}
	if j.OOMKills > 0 {
		j.KilledBy = worse(ByCounter, g.by)
	}
	if j.OOMKills > g.seen {
		n.seen += j.OOMKills - g.seen
		g.seen = j.OOMKills
	}
	g.last = *j
}

// worse is what is less sure of two.
func worse(a, b Source) Source {
	if slices.Index(Sources, b) > slices.Index(Sources, a) {
		return b
	}
	return a
}
