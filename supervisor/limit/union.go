package limit

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Part is one Slurm step of a job that is watched as a whole. Each step has a
// limit, a slurmstepd and perhaps a cgroup of its own.
type Part struct {
	Name string // "46.0"; empty where there is only the one
	*Set
}

// Union is the limits of one process, or of all steps that a job has on this
// node: what two steps have in common, such as the job's cgroup, is in it
// once. It belongs to one goroutine.
type Union struct {
	parts   []Part
	binding int // index in parts of the one with the binding limit
}

// Join makes a union of at least one part.
func Join(parts ...Part) *Union { return &Union{parts: parts} }

// Replace puts other parts in the place of those there are. Sets that are left
// out are closed. No parts at all changes nothing: the last known still tell
// the most.
func (u *Union) Replace(parts []Part) {
	if len(parts) == 0 {
		return
	}
	for _, p := range u.parts {
		if !slices.ContainsFunc(parts, func(q Part) bool { return q.Set == p.Set }) {
			p.Close()
		}
	}
	u.parts, u.binding = slices.Clone(parts), 0
}

// Step returns the step, "0" or "batch", whose memory alone a limit of the last
// reading counts; empty where it counts more, or where no part has a name. What
// slurmstepd sums is one step's whosever the limit is. l may be nil.
func (u *Union) Step(l *event.Limit) string {
	if l == nil {
		return ""
	}
	for _, p := range u.parts {
		switch {
		case p.Name == "" || l.Level == "":
		case l.Name == event.LimitSlurm && l.Level == p.Name,
			slices.ContainsFunc(p.levels, func(v *level) bool {
				return v.scope == event.ScopeStep && strings.HasPrefix(l.Level+"/", v.Dir+"/")
			}):
			_, step, _ := strings.Cut(p.Name, ".")
			return step
		}
	}
	return ""
}

func (u *Union) Close() {
	for _, p := range u.parts {
		p.Close()
	}
}

// Read is [Set.Read] of all parts. A limit that slurmstepd holds a step to has
// the step's name as its level.
func (u *Union) Read(sample *rss.Sample) []event.Limit {
	if len(u.parts) == 1 && u.parts[0].Name == "" {
		return u.parts[0].Read(sample)
	}
	var out []event.Limit
	at := map[event.LimitID]int{} // index in out
	from := map[event.LimitID]int{}
	seen := map[event.LimitName]int{} // parts that have a limit of that name
	for i, p := range u.parts {
		read := p.read
		if i == 0 {
			read = p.Read // the cgroups of the tree are the same for all parts
		}
		for _, l := range read(sample) {
			l.Binding = false
			if l.Name == event.LimitSlurm && l.Scope == event.ScopeStep {
				l.Level = p.Name
			}
			k := l.ID()
			seen[l.Name]++
			if j, twice := at[k]; !twice {
				at[k], from[k] = len(out), i
				out = append(out, l)
			} else if l.ByJobSum() != (l.Limit < out[j].Limit) && l.Limit != out[j].Limit {
				// --limit as a share: of the least. slurmd compares with the largest memory of its launch requests.
				out[j], from[k] = l, i
			}
		}
	}
	// The node's own limit holds where no cgroup comes before it: one step's
	// cgroup is the job's.
	if n := seen[event.LimitNode]; n > 0 && n < len(u.parts) {
		out = slices.DeleteFunc(out, func(l event.Limit) bool { return l.Name == event.LimitNode })
	}
	binding := bind(out)
	u.binding = from[binding.ID()] // the first where none is
	u.parts[u.binding].remember(sample, binding)
	return out
}

// Fast is [Set.Fast] of the part that has the binding limit.
func (u *Union) Fast(now time.Duration, threshold rss.Bytes, sum func() (rss.Bytes, error)) (event.Limit, bool) {
	return u.parts[u.binding].Fast(now, threshold, sum)
}

// Extra is [Set.Extra] of all parts, each process once.
func (u *Union) Extra(r *proctree.Reader, tree []rss.Proc) (procs []rss.Proc, gaps rss.Gaps, err error) {
	for _, p := range u.parts {
		more, g, err := p.Extra(r, tree)
		if err != nil {
			return nil, gaps, err
		}
		gaps = gaps.Add(g)
		for _, q := range more {
			if !slices.ContainsFunc(procs, func(o rss.Proc) bool { return o.ID == q.ID }) {
				procs = append(procs, q)
			}
		}
	}
	return procs, gaps, nil
}

// Warnings is [Set.Warnings] of all parts; what several say alike the caller
// tells once.
func (u *Union) Warnings() (all []Warning) {
	for _, p := range u.parts {
		all = append(all, p.Warnings()...)
	}
	return all
}

// OOMKills is [Set.OOMKills] of all parts, each level once.
func (u *Union) OOMKills() (all []Kills) {
	for _, p := range u.parts {
		for _, k := range p.OOMKills() {
			if i := slices.IndexFunc(all, func(o Kills) bool { return o.Level == k.Level }); i < 0 {
				all = append(all, k)
			} else if all[i].Kills < k.Kills { // counted from later on
				all[i] = k
			}
		}
	}
	return all
}

// NodeKills is [Set.NodeKills] of the part that counts from the longest ago.
func (u *Union) NodeKills() (n uint64) {
	for _, p := range u.parts {
		n = max(n, p.NodeKills())
	}
	return n
}

func (u *Union) NeedsPSS() bool { return u.any((*Set).NeedsPSS) }

func (u *Union) SumsByPPID() bool { return u.any((*Set).SumsByPPID) }

// Outside is [Set.Outside]. Of several steps each has a limit of its own: 0.
func (u *Union) Outside(l *event.Limit, sample *rss.Sample) rss.Bytes {
	if len(u.parts) > 1 {
		return 0
	}
	return u.parts[0].Outside(l, sample)
}

func (u *Union) LeftOpen() bool { return u.any((*Set).LeftOpen) }

func (u *Union) any(f func(*Set) bool) bool {
	return slices.ContainsFunc(u.parts, func(p Part) bool { return f(p.Set) })
}

// Job returns the Slurm job, of the first part where there are several.
func (u *Union) Job() (slurm.Job, bool) { return u.parts[0].Job() }

func (u *Union) SetEnforcement(e slurm.Enforcement, err error) {
	for _, p := range u.parts {
		p.SetEnforcement(e, err)
	}
}

func (u *Union) SetEnd(t time.Time) {
	for _, p := range u.parts {
		p.SetEnd(t)
	}
}
