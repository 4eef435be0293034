package nodejobs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
)

// group is what is kept of a job or a step from look to look.
type group struct {
	level *cgroup.Level
	early early
	trend *rss.Trend
	base  uint64 // kills from before we came
	since time.Time

	use     Use
	lim     cgroup.Limits
	mem     cgroup.Memory
	known   bool
	stated  int // the look in which mem was read, or a little before
	limited int // … in which lim was
	// charged is the charge as of the look chargedAt.
	charged   rss.Bytes
	chargedAt int
	// kept says that the level's descriptors stay open from look to look.
	kept bool
	full int // the look in which memory.stat was read, at first a little before
	// quiet is for how many looks the charge has been the same to the byte, or as good as.
	quiet int
	peak  rss.Bytes
	near  time.Time // since when nearly all of the limit is used
	last  Job       // as it was told, of a job
	by    Source    // how its kills are known, of a job
	seen  uint64    // kills that were told in a look
	// number is a job's where its directory is named by a SLUID, empty while not known.
	number string
	named  int // how often it was asked for
	// uid is a job's user, -1 while not known, and asked how often it was looked for.
	uid, asked int
}

// near is the share of a limit from which on a job counts as about to meet it, in what
// is told of one that did.
const near = 0.9

// trendFrom is the share of a limit from which on growth is followed. A forecast is made
// from a half on; a trend takes 9 KiB.
const trendFrom = 0.25

// Descriptors: what a level takes at most, and what is left to all else.
const (
	perLevel = 7
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
	if g.kept = (n.levels+1)*perLevel+spare <= n.files; !g.kept {
		defer g.level.Close()
	}
	most, err := g.level.Max()
	if err != nil {
		n.failed(err)
		return bound, false
	}
	mem, err := n.memory(g, most)
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

// memory reads the charge, and memory.stat, which costs ten times that, where the
// charge has changed, every few looks, or where it is near the limit: there the page
// cache that goes makes room for what stays. In between what can be reclaimed is taken to
// be what it was.
func (n *Node) memory(g *group, limit rss.Bytes) (cgroup.Memory, error) {
	if g.known && n.looks-g.stated < restful {
		charged, err := g.charged, error(nil)
		if g.chargedAt != n.looks {
			charged, err = g.level.Usage()
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
// [rss.HoldTime] is told from a step; where looks are rarer, it must have held for
// rareLooks of them.
const (
	often     = 10 * time.Second
	rareLooks = 20
)

// forecast follows the growth of a job or step.
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
	u.PerSecond, _, _, u.Growing = g.trend.Slope()
	u.ETA, _, _, u.Forecast = g.trend.ETA(u.Limit)
}
