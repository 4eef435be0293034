package nodejobs

import (
	"maps"
	"slices"
	"time"
)

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

// unheard counts the steps without notifications, and says why.
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

func (n *notices) jobAt(path string) *watchedDir {
	s := n.root
	for name := range below(n.root.path, path) {
		if s = s.kids[name]; s == nil {
			return nil
		}
	}
	return s
}

// note adds the kills of a step to its directory or, where all are listed and it is
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

// tally adds up the counters of a directory and below it, and the kernel's notices of them.
func (n *Node) tally(d *dir) (kills uint64) {
	below := d.gone
	for _, c := range d.kids {
		below += n.tally(c)
	}
	for _, l := range d.lost {
		below += l.all
	}
	if kills = d.kills + below; n.version == 2 {
		kills = max(d.kills, below)
	}
	kills = max(kills, d.told)
	if d.group != nil {
		d.group.counted(kills, n.looks == 1)
	}
	return kills
}

func (n *Node) drop(parent, d *dir) {
	d.each(func(c *dir) {
		if c.group != nil && c.group.level != nil {
			c.group.level.Close()
		}
		if c.kind == kindInner && c.inner != nil {
			*c.inner--
		}
	})
	switch kills := n.tally(d); {
	case kills == 0:
	case d.kind == kindStep:
		l := lost{all: kills}
		if d.group != nil {
			l.ours = kills - min(kills, d.group.base)
		}
		parent.lose(d.id, l)
	case n.version == 1 && d.kind == kindInner:
		parent.gone += kills
	}
	// On its way out a user's directory takes its jobs with it.
	d.each(func(c *dir) {
		if c.kind == kindJob && c.group != nil {
			last := c.group.last
			last.Steps = slices.Clone(last.Steps) // a snapshot has them
			n.takeKills(c, &last)
			n.ended = append(n.ended, Ended{Job: last})
		}
	})
}

// counted takes in what the counter says. What was there when we came is not ours to
// tell; the counter of a group that was made since began at 0.
func (g *group) counted(kills uint64, first bool) {
	if first {
		g.base = kills
	}
	if kills > g.base {
		g.use.OOMKills = kills - g.base
	}
}
