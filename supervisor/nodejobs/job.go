package nodejobs

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/slurm"
)

// job reads a job and its steps. ok is false where it ended meanwhile.
func (n *Node) job(d *dir, node string, uid int, bound rss.Bytes, now time.Time) (j Job, ok bool) {
	bound, ok = n.use(d, bound, now)
	if !ok {
		return j, false
	}
	var steps []*dir
	for _, c := range d.kids {
		if c.kind != kindStep {
			continue
		}
		if _, ok := n.use(c, bound, now); ok {
			steps = append(steps, c)
		}
	}
	n.sum(d)
	if uid < 0 {
		uid = n.owner(d)
	}
	j = Job{ID: n.number(d), Node: node, UID: uid, Use: d.group.use, path: d.path, ino: d.ino}
	for _, c := range steps {
		j.Steps = append(j.Steps, Step{ID: c.id, Use: c.group.use})
	}
	n.takeKills(d, &j)
	return j, true
}

// number is the number of a job, by the title of its slurmstepd where its directory is named
// by a SLUID; that itself where no slurmstepd tells it, as before it has its title. It is
// asked for in the first looks, and then seldom.
func (n *Node) number(d *dir) string {
	g := d.group
	if !slurm.IsSLUID(d.id) || g.number != "" {
		return cmp.Or(g.number, d.id)
	}
	if g.named++; g.named <= recount || g.named%restful == 0 {
		g.number, _ = slurm.JobOfSLUID(n.proc, d.path)
	}
	return cmp.Or(g.number, d.id)
}

// use reads the memory of a job or step, and returns the least limit from here up. ok
// is false where it had a memory cgroup and has none: it ended.
func (n *Node) use(d *dir, bound rss.Bytes, now time.Time) (least rss.Bytes, ok bool) {
	if d.group == nil {
		d.group = &group{since: now, uid: -1}
	}
	g := d.group
	was := g.use.Measured
	g.use = Use{Since: g.since, OOMKills: g.use.OOMKills, Limit: g.use.Limit}
	least, measured := n.measure(d, bound)
	if !measured {
		return least, !was
	}
	n.levels++
	n.forecast(g, now)
	g.use.Peak = g.peak
	if !g.near.IsZero() {
		g.use.Near = now.Sub(g.near)
	}
	return least, true
}

// recount is after how many looks the processes of a step are counted again whose charge
// has stayed the same to the byte, and what is below it is looked at.
const recount = 6

// sum counts processes and kills of a job and of its steps.
func (n *Node) sum(job *dir) {
	n.visit(job, job.group, job.group)
	n.tally(job)
}

// visit is sum of a directory of a group of a job.
func (n *Node) visit(d *dir, of, job *group) {
	if d.group != nil {
		of = d.group
	}
	due := !of.use.Measured || of.quiet%recount == 0 || n.killed
	if due && d.kind == kindStep && d.freshAt != n.looks {
		n.refresh(d)
	}
	// Processes are in leaves as a rule: what is above them and had none is seldom asked.
	if due && (d.procs > 0 || len(d.kids) == 0 || !of.use.Measured || d.countAt <= n.looks) {
		n.count(d, of, job)
		d.countAt = n.looks + 1 + n.levels%recount // not all in the same look
	}
	of.use.Processes += d.procs
	if of != job {
		job.use.Processes += d.procs
	}
	// v1 counts a kill where the victim was, v2 on all levels above too since Linux 5.2.
	if job.use.Measured && n.killed && (n.version == 1 || d.group != nil || !cgroup.CountsBelow(d.path)) {
		if own, ok := n.oomKills(d); ok {
			d.kills = own
		}
	}
	for _, c := range d.kids {
		n.visit(c, of, job)
	}
}

// tally adds up what counters of a directory and below it say, and what was told of them.
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

// count counts the processes of a directory itself, and sums their RSS where no cgroup
// does.
func (n *Node) count(d *dir, of, job *group) {
	if job.use.Measured {
		d.procs = n.processes(d, nil)
		return
	}
	d.procs = n.processes(d, func(pid int) {
		size := n.resident(pid)
		of.use.RSS += size
		if of != job {
			job.use.RSS += size
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

// drop forgets a directory that is gone.
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

// ownerLooks is for how many looks the owner of a job's task is looked for: root's
// never has one.
const ownerLooks = 6

// owner is whom a task of a job belongs to, by the owner of its directory: -1 where that
// is root's, which says nothing.
func (n *Node) owner(job *dir) int {
	g := job.group
	if g.uid >= 0 || g.asked >= ownerLooks {
		return g.uid
	}
	g.asked++
	job.each(func(c *dir) {
		var st unix.Stat_t
		if c.kind == kindInner && g.uid < 0 && unix.Lstat(c.path, &st) == nil && st.Uid != 0 {
			g.uid = int(st.Uid)
		}
	})
	return g.uid
}
