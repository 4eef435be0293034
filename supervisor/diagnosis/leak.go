package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// firm is how long a leak must have held to be more than possible, where
	// nothing else speaks for it.
	firm = time.Minute
	// sure is how long it must have held to be certain, where malloc_trim(3) gave
	// little back.
	sure = 10 * time.Minute
	// littleBack and muchBack are which part of a growth malloc_trim(3) gave back:
	// less speaks for a leak, more for fragmentation.
	littleBack, muchBack = 0.1, 0.5
)

// leaks finds anonymous memory that grows without an end, what malloc_trim(3) gave back, and
// what recycled workers had grown by: they end before a growth without an end would show.
type leaks struct {
	gave     map[int]given
	ended    []*track // the last workers that have ended: the report that one was recycled may come later
	recycled [2]group // of judgedRoles: workers of loaders, and of pools
}

// recycledGrowth is what a recycled worker must have grown by at least to count: less is what
// any worker takes to begin.
const recycledGrowth = 4 * slight

// endedKept is how many ended workers are remembered.
const endedKept = 16

func (k *leaks) end(t *track) {
	if t.role.IsWorker() {
		k.ended = append(k.ended[max(len(k.ended)-endedKept, 0):], t)
	}
}

// replaced takes in that a worker was recycled.
func (k *leaks) replaced(s *State, pid int) {
	for _, t := range slices.Concat(s.tracks, k.ended) {
		if t.id.PID != pid || !t.role.IsWorker() || t.series.n == 0 {
			continue
		}
		most := max(t.series.last.v[anon], t.series.most(anon, 0, t.series.last.at))
		if gain := most.Sub(t.series.points[0].v[anon]); gain >= recycledGrowth {
			k.recycled[slices.Index(judgedRoles, t.role)].add(t, gain, t.series.last.at-t.since)
		}
		return
	}
}

// ofRecycled finds it in workers that were recycled, two of them at least.
func (k *leaks) ofRecycled(s *State) {
	for i, role := range judgedRoles[:len(k.recycled)] {
		g, where := &k.recycled[i], "in the Dataset"
		if g.n < 2 || g.sum < s.matters() {
			continue
		}
		if role == rss.RolePoolWorker {
			where = "in what tasks call"
		}
		s.keep(g.finding(event.FindingWorkerLeak, event.Likely, role, s.ofPools(role, fmt.Sprintf(
			"RssAnon of %s had grown by %v together, up to %v each, when they were recycled (status of %s): a leak, or a cache %s",
			text.Count(g.n, string(role)), g.sum, g.top, whose(g), where)), workerAdvice(s, role)...))
	}
}

func (k *leaks) judge(s *State, role rss.Role) {
	var g, private group
	back, asked := rss.Bytes(0), 0
	for t := range s.of(role) {
		was, ok := s.grows(t, anon)
		// What is page-locked has a finding of its own.
		was.gain = was.gain.Sub(s.lasting(t, pinned) + s.lasting(t, locked))
		if !ok || was.gain < slight {
			continue
		}
		if given, yes := k.gave[t.id.PID]; yes {
			if given.freed.Of(was.gain) >= muchBack {
				continue
			}
			asked++
			back += given.freed
		}
		g.add(t, was.gain, was.over)
		if p, ok := t.parts.ownGrowth(); ok {
			private.add(t, p, was.over)
		}
	}
	if g.n == 0 || g.sum < s.matters() {
		k.kept(s, role)
		return
	}
	confidence := event.Possible
	switch {
	case g.over >= sure && asked == g.n && back.Of(g.sum) < littleBack:
		confidence = event.Certain
	case g.over >= firm, private.n > 0:
		confidence = event.Likely
	}
	if role == rss.RoleTrainer && !s.loads {
		confidence = event.Possible
	}
	evidence := []string{g.grows("RssAnon", role)}
	if private.n > 0 {
		evidence = append(evidence, fmt.Sprintf("Private_Dirty grew with it, by %v: it is new memory and no copy of what a fork shared (smaps_rollup of %s)",
			private.sum, whose(&private)))
	}
	if asked > 0 {
		evidence = append(evidence, fmt.Sprintf("gc.collect and malloc_trim gave back %v of it in %s: it is in use", back, text.Count(asked, "process")))
	} else {
		evidence = append(evidence, "malloc_trim was not tried: what grows may have been freed and kept by the allocator")
	}
	if role == rss.RoleTrainer && !s.loads {
		evidence = append(evidence, "no DataLoader worker was seen: it may be loading its data")
	}
	finding, advice := event.FindingTrainerLeak, []string{
		"keep numbers, not graphs: losses.append(loss.item()), or loss.detach() where a tensor is needed",
		"look for lists of outputs or metrics that outlive the epoch: append x.clone() or x.cpu().numpy(), and clear them",
		"there is no worker to recycle: write a checkpoint in time (signal=USR1@rank0, requeue) and raise --mem",
	}
	if role.IsWorker() {
		finding, advice, evidence = event.FindingWorkerLeak, workerAdvice(s, role), s.ofPools(role, evidence...)
	}
	s.tell(g.endless(finding, confidence, role, evidence, advice...))
}

// kept finds batches that a trainer keeps in the shared memory in which workers sent them.
func (k *leaks) kept(s *State, role rss.Role) {
	if role != rss.RoleTrainer {
		return
	}
	var g group
	for t := range s.of(role) {
		if was, ok := s.grows(t, shmem); ok && s.shm.isBatches(s, t, was.gain) {
			g.add(t, was.gain, was.over)
		}
	}
	if g.n == 0 || g.sum < s.matters() {
		return
	}
	s.tell(g.endless(event.FindingTrainerLeak, event.Likely, role, []string{
		g.grows("RssShmem", role),
		"with it grew what /dev/shm holds: batches as workers sent them (statvfs of /dev/shm, mappings of the trainer)",
	}, "a batch that is kept keeps its shared memory: append x.clone() or x.item(), not x, to lists that outlive the step, and del what is not needed"))
}

// grows is the evidence that a number of these processes grows without an end.
func (g *group) grows(what string, role rss.Role) string {
	return fmt.Sprintf("%s of %s grew by %v a minute for %s, by %v in all (status of %s)",
		what, text.Count(g.n, string(role)), g.pace, text.About(g.over.Seconds()), g.sum, whose(g))
}

// finding is one about these processes.
func (g *group) finding(f event.Finding, c event.Confidence, role rss.Role, evidence []string, advice ...string) event.Diagnosis {
	return event.Diagnosis{Finding: f, Confidence: c, Role: role, PID: g.most.id.PID, Bytes: g.sum, Procs: g.n, Evidence: evidence, Advice: advice}
}

// endless is a finding that they grow.
func (g *group) endless(f event.Finding, c event.Confidence, role rss.Role, evidence []string, advice ...string) event.Diagnosis {
	d := g.finding(f, c, role, evidence, advice...)
	d.Rate = g.bytesPerSecond()
	return d
}

// given is what malloc_trim(3) gave back in one process, the last time.
type given struct {
	freed rss.Bytes
	role  rss.Role
	had   rss.Bytes // RssAnon at the last look before
}

func (k *leaks) collected(s *State, pid int, freed rss.Bytes) {
	g := given{freed: freed, role: rss.RoleOther}
	for _, t := range s.tracks {
		if t.id.PID == pid {
			g.role, g.had = t.role, t.series.last.v[anon]
		}
	}
	// Fragmentation that was given back is no less one for a second try that
	// found nothing more.
	if old, ok := k.gave[pid]; ok && old.freed > freed && freed < old.freed/2 && old.freed >= leastGrowth {
		return
	}
	if _, ok := k.gave[pid]; ok || len(k.gave) < manyTold {
		k.gave[pid] = g
	}
}

// fragmented finds memory that came back to the kernel only when malloc_trim(3) was called.
func (k *leaks) fragmented(s *State) {
	for _, role := range append(slices.Clone(judgedRoles), rss.RoleOther) {
		var sum, top, had rss.Bytes
		n, most := 0, 0
		for pid, g := range k.gave {
			if g.role != role || g.freed < slight {
				continue
			}
			n++
			sum, had = sum+g.freed, had+g.had
			if g.freed > top || g.freed == top && pid < most {
				top, most = g.freed, pid
			}
		}
		if n == 0 || sum < s.matters() {
			continue
		}
		of := ""
		if had >= sum {
			of = fmt.Sprintf(" of %v that they had", had)
		}
		s.tell(event.Diagnosis{
			Finding: event.FindingFragmentation, Confidence: event.Certain, Role: role, PID: most, Bytes: sum, Procs: n,
			Evidence: []string{fmt.Sprintf("gc.collect and malloc_trim(3) gave back %v%s in %s (RssAnon of status before and after, %v in process %d)",
				sum, of, text.Count(n, "process"), top, most)},
			Advice: []string{
				"MALLOC_ARENA_MAX=2 in the environment of the job: fewer arenas to keep freed blocks in",
				"a ladder rule for gc (90%:gc) gives it back while the job runs",
				"preallocate and reuse buffers, or load as numpy arrays or tensors: many small objects between long-lived ones leave holes",
			},
		})
	}
}

// ofPools adds to the evidence of pool workers which pools those are, as the hook said.
func (s *State) ofPools(role rss.Role, evidence ...string) []string {
	if kinds := s.loaders.pools(); role == rss.RolePoolWorker && len(kinds) > 0 {
		evidence = append(evidence, "pool workers of "+text.List(kinds, text.All)+" (told by the hook)")
	}
	return evidence
}

func workerAdvice(s *State, role rss.Role) []string {
	if role == rss.RolePoolWorker {
		return []string{
			"look for what the task's function keeps in globals and caches: CACHE.append(x); bound a cache with functools.lru_cache(maxsize=N)",
			"recycle (90%:recycle) replaces the workers one by one between two tasks and gives it back, with no task lost",
			"maxtasksperchild=N of a Pool, max_tasks_per_child=N of a ProcessPoolExecutor (Python 3.11, not with fork): workers that end after N tasks give it back",
			"if malloc_trim gives it back (90%:gc) it is fragmentation: MALLOC_ARENA_MAX=2",
		}
	}
	out := []string{
		"look for what __getitem__ or collate_fn keeps: self.cache[i] = x, self.seen.append(x); bound a cache with functools.lru_cache(maxsize=N)",
		"recycle (90%:recycle) replaces the workers one by one and gives it back, with no batch lost",
	}
	if s.loaders.persistent() {
		out = append(out, "persistent_workers=False: workers that end with the epoch give it back")
	}
	return append(out, "if malloc_trim gives it back (90%:gc) it is fragmentation: MALLOC_ARENA_MAX=2")
}
