package nodejobs

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/slurm"
)

const (
	kindMount kind = iota // of v1
	kindSlice             // the mount of v2, and slices
	kindTop               // of all jobs of a node: slurm_NODE, NODE_slurmstepd.scope
	kindUser              // uid_N, of v1
	kindJob
	kindStep
	kindInner // whatever is below a step
)

// below yields the names on the way down.
func below(from, to string) func(func(string) bool) {
	rel, err := filepath.Rel(from, to)
	if err != nil || rel == "." {
		rel = ".."
	}
	return strings.SplitSeq(rel, "/")
}

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

// lost is a step that is gone and that had kills: by its counter, and since we came.
type lost struct{ all, ours uint64 }

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

// group is what is kept of a job or a step from look to look.
type group struct {
	level *cgroup.Level
	early early
	trend *rss.Trend
	base  uint64 // kills from before we came
	since time.Time

	use Use
	memory
	peak rss.Bytes
	near time.Time // since when nearly all of the limit is used
	last Job       // as it was told, of a job
	by   Source    // how its kills are known, of a job
	seen uint64    // kills that were told in a look
	// number is a job's where its directory is named by a SLUID, empty while not known.
	number string
	named  int // how often it was asked for
	// uid is a job's user, -1 while not known, and asked how often it was looked for.
	uid, asked int
}

// memory is what was read of a group's memory, and when: in which look.
type memory struct {
	lim       cgroup.Limits
	limited   int // lim
	mem       cgroup.Memory
	known     bool // that mem was read
	stated    int  // mem, or a little before
	full      int  // memory.stat, at first a little before
	maxAt     int  // lim.Max
	charged   rss.Bytes
	chargedAt int // the look for which charged is taken …
	readAt    int // … and in which it was read
	// quiet is for how many looks the charge has been the same to the byte, or as good as.
	quiet int
	// kept says that the level's descriptors stay open from look to look.
	kept bool
}

// early keeps how a job or step grew before it is worth a trend, in a sixteenth of its
// memory. Who fills its limit within minutes has gone far beyond half of it when a trend
// that begins at a quarter has seen enough.
type early struct {
	at   [earlyLooks]time.Duration
	used [earlyLooks]rss.Bytes
	n    int // readings so far; the newest are kept
}

// add takes a reading, but for one that comes soon after another.
func (e *early) add(at time.Duration, used rss.Bytes) {
	if e.n > 0 && at-e.at[(e.n-1)%earlyLooks] < earlyApart {
		return
	}
	e.at[e.n%earlyLooks], e.used[e.n%earlyLooks] = at, used
	e.n++
}

// trend begins a trend with what was kept.
func (e *early) trend() *rss.Trend {
	t := new(rss.Trend)
	for i := max(0, e.n-earlyLooks); i < e.n; i++ {
		t.Add(e.at[i%earlyLooks], e.used[i%earlyLooks])
	}
	return t
}

const (
	// earlyLooks and earlyApart make early reach back for [rss.HoldTime] at every
	// interval of looks, dense enough for a slope.
	earlyLooks = 36
	earlyApart = 5 * time.Second
)

// kind is what a directory of the cgroup tree is to Slurm.
type kind int

// Bounds on what is followed: below a step directories may be its user's (v1 before
// Slurm 23.11), and a user who makes very many would have us read them all.
const (
	deepest   = 16   // levels below a step
	maxInner  = 4096 // directories below a step, on all levels
	maxSlices = 4    // levels of slices
)

// dir is one directory that is followed.
type dir struct {
	path, name string
	kind       kind
	id         string // of a node, user, job or step
	depth      int    // below the mount, or below the step
	ino, links uint64 // as of the last listing
	kids       []*dir
	inner      *int // of a step and all below it: how many directories that are
	freshAt    int  // the look in which it was brought up to date

	group   *group          // of a job and of a step
	procs   int             // processes of its own, as of the last time they were counted
	countAt int             // the look from which on they are counted again where there were none
	kills   uint64          // v1: the directory's own count
	gone    uint64          // v1: the counts of directories below that are no more
	told    uint64          // of a step: its count as the kernel's notice had it read
	lost    map[string]lost // of a job: steps that are gone, by their IDs
}

// child says what a subdirectory is, nil for one that is not followed.
func (d *dir) child(name string) *dir {
	c := &dir{name: name, path: filepath.Join(d.path, name), kind: kindInner, depth: d.depth + 1}
	ok := true
	switch d.kind {
	case kindMount:
		c.kind = kindTop
		c.id, ok = strings.CutPrefix(name, "slurm")
		if ok && c.id != "" {
			c.id, ok = strings.CutPrefix(c.id, "_")
		}
	case kindSlice:
		c.kind = kindTop
		if c.id, ok = strings.CutSuffix(name, "slurmstepd.scope"); ok {
			if c.id != "" {
				c.id, ok = strings.CutSuffix(c.id, "_")
			}
			break
		}
		c.kind, ok = kindSlice, strings.HasSuffix(name, ".slice") && c.depth <= maxSlices
	case kindTop, kindUser:
		if uid, isUser := strings.CutPrefix(name, "uid_"); isUser && d.kind == kindTop {
			_, err := strconv.ParseUint(uid, 10, 32)
			c.kind, c.id, ok = kindUser, uid, err == nil
			break
		}
		c.kind = kindJob
		c.id, ok = slurm.JobOfDir(name)
	case kindJob:
		c.kind, c.depth = kindStep, 0
		c.id, ok = slurm.StepOfDir(name)
		c.inner = new(int)
	default:
		c.inner = d.inner
		ok = c.depth <= deepest
	}
	if !ok || c.kind == kindTop && c.id != "" && !IsNodeName(c.id) {
		return nil
	}
	return c
}

// IsNodeName recognizes what Slurm may call a node.
func IsNodeName(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-_.", rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// compareIDs orders names as people do: job_9 before job_10.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func (d *dir) each(do func(*dir)) {
	do(d)
	for _, c := range d.kids {
		c.each(do)
	}
}

// tree is one hierarchy that may have directories of Slurm.
type tree struct {
	version    int
	controller string // of v1
	root       *dir
	real       bool // the kernel's, and no files that stand for it
}

func (t *tree) where() string {
	if t.version == 2 {
		return "cgroup v2"
	}
	return t.controller
}
