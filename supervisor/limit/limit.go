// Package limit finds every way in which memory can end the job, and says how
// far off each is, in exactly the accounting of its enforcer.
//
// A [Set] is made once by [Find] and read at every full tick; limits are read
// again each time, since they may shrink under a running job. Every number
// comes with the place it was read from. What cannot be found out is a
// [Warning], never an error: with no cgroup and no Slurm there is still the
// node. Places that were looked at and gave nothing are kept too, for
// `rsswarden limits`.
//
// For a cgroup, used is the unreclaimable part of the charge of the same level
// that has the limit: page cache at the limit is normal and kills nothing. For
// Slurm, used is the sum that slurmstepd compares, over the processes that it
// counts, orphans left out where it sums by parent. PSS is known only to lie
// between two bounds: Used is the lower, UsedMax the upper. Both allow for what
// other processes have mapped and given up since each reading.
//
// In a step where neither Slurm's configuration nor scontrol can be read, as in
// a container, it is not known whether slurmstepd kills. A kernel limit of the
// step or job says that it does not: Slurm refuses to do both. Else the worst is
// assumed, summed RSS against RLIMIT_RSS, and called an assumption.
//
// A Set belongs to one goroutine.
package limit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type Config struct {
	Proc, Sys string // "/proc" and "/sys" outside tests
	// PID is the command, or any process whose limits are wanted.
	PID int
	// Self are our own processes, the holder and the watcher: they count in
	// what Slurm sums.
	Self []int
	// User is --limit in bytes; UserShare is --limit as a share of the least
	// limit that is found, 0.8 for 80 %. Both 0: no such limit.
	User      rss.Bytes
	UserShare float64
	// UserSource is where the user wrote it, for people; empty for --limit.
	UserSource string
	// Accounting is --accounting, how the tree is added up for --limit.
	Accounting event.Accounting
	// Lookup reads the environment of the job; nil means an empty one.
	Lookup func(string) (string, bool)
	// Slurm says how Slurm's configuration is found. With a Scontrol in it,
	// Find may take as long as scontrol does; see [Set.LeftOpen].
	Slurm slurm.Search
}

// Warning is something that could not be found out and what follows from it.
type Warning struct {
	Part string // "cgroup", "slurm", "node", "user"
	Text string
}

func (w Warning) String() string { return w.Part + ": " + w.Text }

type Looked struct {
	Where string `json:"where"`
	Found string `json:"found"`
}

// search is where limits are looked for, and what was noticed on the way.
type search struct {
	cfg    Config
	looked []Looked
	warned map[string]bool
	warns  []Warning
}

// Warnings returns what could not be found out since the last call, each only
// once.
func (s *search) Warnings() []Warning {
	w := s.warns
	s.warns = nil
	return w
}

func (s *search) warn(part, format string, args ...any) {
	w := Warning{part, fmt.Sprintf(format, args...)}
	if !s.warned[w.String()] {
		s.warned[w.String()] = true
		s.warns = append(s.warns, w)
	}
}

func (s *search) look(where, format string, args ...any) {
	s.looked = append(s.looked, Looked{where, fmt.Sprintf(format, args...)})
}

// Set is every limit of one job on this node, found by one reader for each possible
// enforcer.
type Set struct {
	*search
	*node
	*cgroups
	*step
	user userLimit
	fast fastState
}

// Find looks at everything that can limit the job: the cgroups of cfg.PID up
// to the root, Slurm's environment, limits and configuration, the node's
// memory. What fails becomes a warning and the rest goes on.
func Find(ctx context.Context, cfg Config) (*Set, []Warning) {
	if cfg.Lookup == nil {
		cfg.Lookup = func(string) (string, bool) { return "", false }
	}
	s := &Set{search: &search{cfg: cfg, warned: map[string]bool{}}}
	s.node = findNode(s.search)
	s.cgroups = findCgroups(s.search, s.node)
	s.step = findStep(ctx, s.search, s.cgroups)
	s.findUser()
	return s, s.Warnings()
}

func (s *Set) Close() {
	s.meminfo.Close()
	s.sum.close()
	s.cgroups.close()
}

// Read returns every limit as of this sample, in the order in which they would
// end the job if all grew alike: the fullest first, then those that end
// nothing, the job's end last. The first that can end the job, or that the
// user set, is marked binding. Limits are read again.
//
// What the tree has moved to is among them: see [Set.Outside].
func (s *Set) Read(sample *rss.Sample) []event.Limit {
	s.follow(sample)
	return s.read(sample)
}

// read is Read of the cgroups that are known.
func (s *Set) read(sample *rss.Sample) []event.Limit {
	s.node.update()
	out := s.cgroups.limits(sample.Mono)
	out = append(out, s.step.limits(sample)...)
	out = append(out, s.readUser(sample)...)
	out = append(out, s.node.limits(out, s.holdsTree)...)
	out = append(out, s.step.time(sample.At)...)
	s.remember(sample, bind(out))
	return out
}

// bind puts limits into their order and marks the one that is binding, which it
// returns; empty where none is.
func bind(limits []event.Limit) event.Limit {
	order(limits)
	if len(limits) == 0 || rank(limits[0].Name) != 0 {
		return event.Limit{}
	}
	limits[0].Binding = true
	return limits[0]
}

// order sorts by rank, then by used over limit.
func order(limits []event.Limit) {
	slices.SortStableFunc(limits, func(a, b event.Limit) int {
		if r := cmp.Compare(rank(a.Name), rank(b.Name)); r != 0 {
			return r
		}
		return cmp.Compare(b.UsedMax.Of(b.Limit), a.UsedMax.Of(a.Limit))
	})
}

// rank is 0 for what memory can end or the user chose, 1 for what only slows
// down, 2 for the job's end.
func rank(n event.LimitName) int {
	switch n {
	case event.LimitThrottle:
		return 1
	case event.LimitTime:
		return 2
	}
	return 0
}

// NeedsPSS says that a limit is compared in PSS, so that smaps_rollup is worth
// its cost.
func (s *Set) NeedsPSS() bool {
	sums, _ := s.rules.Sums()
	return event.Accounting(sums) == event.AccountingPSS ||
		s.hasUser() && s.user.accounting == event.AccountingPSS
}

// Explanation is all that `rsswarden limits` shows.
type Explanation struct {
	// Limits are in the order in which they would end the job.
	Limits []event.Limit `json:"limits"`
	// Looked is every place that was looked at, also those that gave nothing.
	Looked   []Looked `json:"looked"`
	Warnings []string `json:"warnings,omitempty"`
}

// Explain returns the limits of the last reading, given as limits, with how
// they were found. warnings are those that Find and Warnings returned.
func (s *Set) Explain(limits []event.Limit, warnings []Warning) Explanation {
	e := Explanation{Limits: limits, Looked: s.looked}
	for _, w := range warnings {
		e.Warnings = append(e.Warnings, w.String())
	}
	return e
}

// fastState is what the last full reading left for the fast tick.
type fastState struct {
	limit event.Limit // the binding limit; empty where there is none
	level *level      // its cgroup, nil where it is none
	extra rss.Bytes   // Used less the cgroup's unreclaimable: swap
	rss   rss.Bytes   // sum of the tree's RSS in the last full reading
}

const (
	// statPause is the least time between two readings of memory.stat for no
	// other reason than that usage is at the limit: 20 a second.
	statPause = 50 * time.Millisecond
	// statShare is the part of a core that those may take. The kernel flushes the
	// counters of every CPU for each, which takes milliseconds on large nodes.
	statShare = 0.02
)

// statEvery is the least time between two such readings.
func (l *level) statEvery() time.Duration {
	return min(max(statPause, l.statCost.Pause(statShare)), time.Second)
}

// Fast reads one counter of the binding limit: the cgroup's usage, the node's
// meminfo, or by sum the RSS of the tree ([proctree.Reader].SumRSS), whichever
// the limit is compared with. It reports false where no limit is binding or
// the counter cannot be read.
//
// memory.stat is read once usage less what was last seen to be reclaimable
// reaches threshold: only it can tell whether a full reading, which costs more,
// is called for. While usage is at the limit, where memory can turn
// unreclaimable without usage growing, it is read 20 times a second at most,
// and where a reading is expensive for no more than 2 % of a core.
//
// Of a cgroup Used is as good as a full reading's where it equals UsedMax; else it is the last one moved by
// what one counter grew, and UsedMax bounds it.
func (s *Set) Fast(now time.Duration, threshold rss.Bytes, sum func() (rss.Bytes, error)) (l event.Limit, ok bool) {
	l = s.fast.limit
	switch {
	case l.Name == "":
		return l, false
	case s.fast.level != nil:
		return s.fastCgroup(l, now, threshold)
	case l.Name == event.LimitNode:
		m, err := s.meminfo.Read()
		if err != nil {
			return l, false
		}
		l.Used, l.UsedMax = m.Used(), m.Used()
		return l, true
	case sum == nil || l.Accounting == event.AccountingVirtual:
		return l, false
	}
	n, err := sum()
	if err != nil {
		return l, false
	}
	grown, shrunk := n.Sub(s.fast.rss), s.fast.rss.Sub(n)
	switch l.Accounting {
	case event.AccountingRSS, event.AccountingCgroup:
		// What slurmstepd sums of its tasks' cgroups is too many files for a fast
		// tick; a full look follows where this comes near.
		l.Used = (l.Used + grown).Sub(shrunk)
		l.UsedMax = l.Used
	default:
		// What was dropped may have been shared and so not counted.
		l.Used = l.Used.Sub(shrunk)
		l.UsedMax += grown
	}
	return l, true
}

func (s *Set) fastCgroup(e event.Limit, now time.Duration, threshold rss.Bytes) (event.Limit, bool) {
	l := s.fast.level
	usage, err := l.Usage()
	if err != nil {
		return e, false
	}
	e.Charged, e.Used, e.UsedMax = usage, usage.Sub(l.mem.Reclaimable)+s.fast.extra, usage+s.fast.extra
	atLimit := usage.Of(l.last.Max) >= full
	if (e.Used >= threshold || atLimit && now-l.statAt >= l.statEvery()) && s.readMemory(l, now) {
		e.Used = l.mem.Unreclaimable + s.fast.extra
		e.UsedMax, e.Charged, e.WorkingSet = e.Used, l.mem.Charged, l.mem.WorkingSet
	}
	return e, true
}

func (s *Set) remember(sample *rss.Sample, binding event.Limit) {
	s.fast = fastState{limit: binding}
	if binding.Accounting == event.AccountingCgroup {
		for _, l := range s.all() {
			if l.Dir == binding.Level {
				s.fast.level = l
				s.fast.extra = binding.Used.Sub(l.mem.Unreclaimable)
			}
		}
	}
	for i := range sample.Procs {
		s.fast.rss += sample.Procs[i].RSS
	}
}

// userLimit is --limit with the accounting it is compared in.
type userLimit struct {
	accounting event.Accounting
	level      *level // for the cgroup accounting
}

func (s *Set) hasUser() bool { return s.cfg.User > 0 || s.cfg.UserShare > 0 }

// findUser settles the accounting of --limit: as asked, else that of the
// enforcer with the least limit, else rss.
func (s *Set) findUser() {
	if !s.hasUser() {
		return
	}
	acc := s.cfg.Accounting
	if acc == "" || acc == event.AccountingAuto {
		acc = event.AccountingRSS
		if _, a, ok := s.least(); ok {
			acc = a
		}
	}
	s.user = userLimit{accounting: acc}
	if acc != event.AccountingCgroup {
		return
	}
	if s.user.level, _ = s.limiting(); s.user.level == nil {
		s.warn("user", "--accounting=cgroup, and there is no memory cgroup: the tree's summed rss is used")
		s.user.accounting = event.AccountingRSS
	}
}

// least returns the least limit that is enforced on the job, and the
// accounting of it: Slurm's where both are equal, since its sum is the larger.
func (s *Set) least() (rss.Bytes, event.Accounting, bool) {
	acc := event.AccountingCgroup
	_, limit := s.limiting()
	if sums, _ := s.sums(0); sums != "" && len(s.given) > 0 && rss.Bytes(s.given[0].Bytes) <= limit {
		limit, acc = rss.Bytes(s.given[0].Bytes), sums
	}
	return limit, acc, limit != cgroup.Unlimited
}

// readUser compares the tree with --limit.
func (s *Set) readUser(sample *rss.Sample) []event.Limit {
	if !s.hasUser() {
		return nil
	}
	u, source := s.user, cmp.Or(s.cfg.UserSource, "--limit")
	e := event.Limit{
		Name: event.LimitUser, Scope: event.ScopeTree, Accounting: u.accounting, Limit: s.cfg.User,
		Enforcer: "rsswarden's rules alone", UsedSource: sumSource[u.accounting], LimitSource: source,
	}
	if s.cfg.User == 0 {
		base, _, ok := s.least()
		if !ok {
			base = s.mem.Total
		}
		if base == 0 {
			s.warn("user", "--limit is a share, and no limit was found that it could be a share of")
			return nil
		}
		e.Limit = base.Scale(s.cfg.UserShare)
		e.LimitSource = fmt.Sprintf("%s, %.4g %% of %v", source, 100*s.cfg.UserShare, base)
	}
	if u.level != nil {
		if u.level.tick != s.tick && !s.readMemory(u.level, sample.Mono) {
			return nil
		}
		return []event.Limit{u.level.charged(e.Name, e.Limit, e.Enforcer, e.LimitSource)}
	}
	var sum total
	for i := range sample.Procs {
		sum.add(&sample.Procs[i], u.accounting)
	}
	sum.put(&e, sample.Mono)
	return []event.Limit{e}
}

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

// AwaitVictim is [Set.AwaitVictim] of all parts.
func (u *Union) AwaitVictim() {
	for _, p := range u.parts {
		p.AwaitVictim()
	}
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
