package nodejobs

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
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
const recount = 12

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
		// It may be gone, or the kernel older than 4.13.
		if own, ok := n.killsIn(d.path + "/" + killsFile(n.version)); ok {
			d.kills = own
		}
	}
	for _, c := range d.kids {
		n.visit(c, of, job)
	}
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

// ownerLooks is for how many looks the owner of a job's task is looked for: root's
// never has one.
const ownerLooks = 6

// owner is the user of a job, by the owner of a task's directory: -1 where that is root,
// which says nothing.
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

// near is the share of a limit from which on a job counts as about to meet it, in what
// is reported of one that did.
const near = 0.9

// trendFrom is the share of a limit from which on growth is followed. A forecast is made
// from a half on; a trend takes 9 KiB.
const trendFrom = 0.25

// Descriptors: what a level takes at most, what where there are many, and what is left to all else.
const (
	perLevel = 7
	perFew   = 2
	spare    = 256
)

// measure reads the memory of a job or step. bound is the least limit above it. It
// returns the least limit from here up, and false where there is no memory cgroup.
func (n *Node) measure(d *dir, bound rss.Bytes) (rss.Bytes, bool) {
	g := d.group
	own := d.path
	if d.kind == kindStep && n.version == 2 {
		// Slurm limits the programs of a step apart from its slurmstepd.
		for _, c := range d.kids {
			if c.name == "user" {
				own = c.path
			}
		}
	}
	if g.level == nil || g.level.Dir != own {
		if g.level != nil {
			g.level.Close()
		}
		g.level = &cgroup.Level{Version: n.version, Dir: own, Name: filepath.Base(own)}
	}
	each := perLevel
	if n.few {
		each = perFew
	}
	switch g.kept = (n.levels+1)*each+spare <= n.files; {
	case !g.kept:
		defer g.level.Close()
	case n.few:
		defer g.level.CloseRest()
	}
	most, err := g.lim.Max, error(nil)
	if g.limited == 0 || n.looks-g.maxAt >= easyEach || g.charged.Of(g.use.Limit) >= easy {
		if most, err = g.level.Max(); err != nil {
			n.failed(err)
			return bound, false
		}
		if g.maxAt = n.looks; g.limited == 0 {
			g.maxAt -= n.levels % easyEach // not all in the same look
		}
	}
	mem, err := n.readMemory(g, most)
	// That of swap is changed with that of memory, or read as late as all that rests is.
	if err == nil && (most != g.lim.Max || g.limited == 0 || n.looks-g.limited >= restful) {
		if g.lim, err = g.level.Limits(); err == nil {
			g.limited = n.looks - n.levels%restful
		}
	}
	if err != nil {
		n.failed(err)
		return bound, false
	}
	lim := g.lim
	limit := min(bound, lim.Max)
	if n.version == 1 && mem.LeastMax != 0 {
		limit = min(limit, mem.LeastMax)
	}
	used := mem.Unreclaimable
	if limit == cgroup.Unlimited && n.version == 1 && min(lim.Swap, mem.LeastSwap) != cgroup.Unlimited && mem.LeastSwap != 0 {
		// ConstrainRAMSpace=no and ConstrainSwapSpace=yes: memory and swap together.
		limit = min(lim.Swap, mem.LeastSwap)
		if both, err := g.level.SwapUsage(); err == nil {
			used += both.Sub(mem.Charged).Sub(mem.SwapCached)
		}
	}
	g.use.Measured = true
	g.use.Charged, g.use.Unreclaimable, g.use.Used, g.use.Limit = mem.Charged, mem.Unreclaimable, used, limit
	return limit, true
}

// restful is for how many looks a job whose charge stays the same to the byte is taken
// for unchanged.
const restful = 30

// A job or step that is charged less than half of its limit, and whose charge has moved by
// less than a 64th of that, is read in full in each third look alone.
const (
	easy     = 0.5
	moved    = 1. / 64
	easyEach = 3
)

// readMemory reads the charge, and memory.stat, which costs ten times that, where the
// charge has changed, every few looks, or where it is near the limit: there the page
// cache that goes makes room for what stays. In between what can be reclaimed is taken to
// be what it was.
func (n *Node) readMemory(g *group, limit rss.Bytes) (cgroup.Memory, error) {
	if g.known && n.looks-g.stated < restful {
		charged, err := g.charged, error(nil)
		if g.chargedAt != n.looks {
			charged, err = g.level.Usage()
			g.charged, g.chargedAt, g.readAt = charged, n.looks, n.looks
		}
		if err != nil || charged == g.mem.Charged && charged.Of(min(limit, g.use.Limit)) < near {
			g.quiet++
			return g.mem, err
		}
		limit := min(limit, g.use.Limit)
		if n.looks-g.full < easyEach && charged.Of(limit) < easy && max(charged, g.mem.Charged).Sub(min(charged, g.mem.Charged)).Of(limit) < moved {
			g.quiet++
			mem := g.mem
			mem.Charged, mem.Reclaimable = charged, min(mem.Reclaimable, charged)
			mem.Unreclaimable = charged - mem.Reclaimable
			return mem, nil
		}
	}
	g.quiet = 0
	mem, err := g.level.Memory()
	if err == nil {
		rested := !g.known || n.looks-g.full > easyEach
		if g.full = n.looks; rested {
			g.full -= n.levels % easyEach // many may begin to move at once
		}
		// Not all in the same look.
		g.mem, g.known, g.stated = mem, true, n.looks-n.levels%restful
	}
	return mem, err
}

// failed counts what could not be read for another reason than that it ended.
func (n *Node) failed(err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return
	}
	n.failures++
	n.failure = err
}

// often is the longest time between two looks with which growth that has held for
// [rss.HoldTime] is distinguished from a step; where looks are rarer, it must have held for
// rareLooks of them.
const (
	often     = 10 * time.Second
	rareLooks = 20
)

func (n *Node) forecast(g *group, now time.Time) {
	u := &g.use
	g.peak = max(g.peak, u.Used)
	if u.Limit == cgroup.Unlimited {
		g.near = time.Time{}
		return
	}
	switch ratio := u.Used.Of(u.Limit); {
	case ratio < near:
		g.near = time.Time{}
	case g.near.IsZero():
		g.near = now
	}
	at := now.Sub(n.began)
	if g.trend == nil {
		if u.Used.Of(u.Limit) < trendFrom {
			g.early.add(at, u.Used)
			return
		}
		g.trend = g.early.trend()
		if n.Interval > often {
			g.trend.Hold = rareLooks * n.Interval
		}
	}
	g.trend.Add(at, u.Used)
	u.PerSecond, u.Growing = g.trend.Slope()
	var most time.Duration
	u.ETA, _, most, u.Forecast = g.trend.ETA(u.Limit)
	u.Forecast = u.Forecast && most < rss.Never // else growth may flatten before
}
