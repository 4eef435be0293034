package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// partsTrack is the first and the last reading of smaps_rollup of one process.
type partsTrack struct {
	first, last Parts
	n           int
}

func (p *partsTrack) add(r *Parts) {
	if p.n > 0 && r.At <= p.last.At {
		return
	}
	if p.n == 0 {
		p.first = *r
	}
	p.last = *r
	p.n++
}

// anonGrowth is by how much all anonymous memory grew between the two.
func (p *partsTrack) anonGrowth() rss.Bytes { return p.last.Anonymous.Sub(p.first.Anonymous) }

// copied is what became private of what a fork had shared: Private_Dirty went up by more than
// there is new memory, and Shared_Dirty down.
func (p *partsTrack) copied() (rss.Bytes, bool) {
	if p.n < 2 || p.last.At-p.first.At < settle {
		return 0, false
	}
	up := p.last.PrivateDirty.Sub(p.first.PrivateDirty).Sub(p.anonGrowth())
	return min(up, p.first.SharedDirty.Sub(p.last.SharedDirty)), true
}

// ownGrowth is by how much Private_Dirty grew, where that is new memory.
func (p *partsTrack) ownGrowth() (rss.Bytes, bool) {
	up := p.last.PrivateDirty.Sub(p.first.PrivateDirty)
	grown := p.anonGrowth()
	return min(up, grown), p.n > 1 && grown >= slight && up >= grown/2
}

// leastCopied is what each worker must have copied: the interpreter's own objects
// and torch's, which every worker touches, come to half of it.
const leastCopied = 32 * rss.MiB

// copyOnWrite finds pages that a fork had shared and workers write to: reference
// counts are in the objects themselves.
func copyOnWrite(s *State, role rss.Role) {
	var g group
	workers := 0
	for t := range s.of(role) {
		workers++
		if v, ok := t.parts.copied(); ok {
			g.add(t, v, t.parts.last.At-t.parts.first.At)
		}
	}
	if g.n == 0 || g.sum/rss.Bytes(g.n) < leastCopied {
		return
	}
	p, confidence := &g.most.parts, event.Likely
	evidence := fmt.Sprintf("process %d: Private_Dirty from %v to %v and Shared_Dirty from %v to %v in %s, with its anonymous memory at %v before and %v after (smaps_rollup)",
		g.most.id.PID, p.first.PrivateDirty, p.last.PrivateDirty, p.first.SharedDirty, p.last.SharedDirty, text.About(g.over.Seconds()), p.first.Anonymous, p.last.Anonymous)
	if p.n > 2 {
		confidence = event.Certain
	}
	total := g.sum / rss.Bytes(g.n) * rss.Bytes(workers)
	if total < s.matters() {
		return
	}
	of := fmt.Sprintf("%s copied %v of what the fork shared: no summed RSS shows it", text.Count(g.n, string(role)), g.sum)
	if g.n < workers {
		of = fmt.Sprintf("%d of %d workers were read and copied %v of what the fork shared, so all of them some %v (an estimate): no summed RSS shows it",
			g.n, workers, g.sum, total)
	}
	s.tell(event.Diagnosis{
		Finding: event.FindingCopyOnWrite, Confidence: confidence, Role: role, PID: g.most.id.PID, Bytes: total, Procs: workers,
		Evidence: []string{evidence, of}, Advice: copyAdvice(s, role),
	})
}

const (
	// leastOwn is what each worker must have of its own: a batch or two and what
	// worker_init_fn imports come to less.
	leastOwn = 64 * rss.MiB
	// alike is how near the least of them must come to the most: workers get the same
	// data set.
	alike = 0.7
	// A pickle is about as large as arrays and bytes are in memory. It may have a
	// sixteenth of what lists and dicts of small objects take, but so it may where a
	// program imports much after torch.
	sameSize, smallest = 0.5, 1.0 / 16
)

// copies finds a data set that each worker of a loader has for itself: of the loader
// with the most, and what all of them come to.
func copies(s *State) {
	var most event.Diagnosis
	loaders, sum, procs := 0, rss.Bytes(0), 0
	for i := range s.loaders.all {
		d, ok := s.loaders.all[i].copies(s.accounting)
		if !ok {
			continue
		}
		loaders++
		sum, procs = sum+d.Bytes, procs+d.Procs
		if d.Bytes > most.Bytes {
			most = d
		}
	}
	if loaders == 0 || sum < s.matters() {
		return
	}
	if loaders > 1 {
		most.Bytes, most.Procs = sum, procs
		most.Evidence = append(most.Evidence, fmt.Sprintf("the workers of %d DataLoaders hold %v so", loaders, sum))
	}
	s.tell(most)
}

// copies judges one loader by what its trainer and its workers measured. It waits
// until each worker has told.
func (l *Loader) copies(accounting event.Accounting) (event.Diagnosis, bool) {
	n := len(l.Own)
	if l.Method == "" || l.Method == "fork" || n == 0 || n < l.Workers {
		return event.Diagnosis{}, false
	}
	least, most, sum := slices.Min(l.Own), slices.Max(l.Own), rss.Bytes(0)
	for _, own := range l.Own {
		sum += own
	}
	if least < max(leastOwn, most.Scale(alike)) {
		return event.Diagnosis{}, false
	}
	d := event.Diagnosis{Finding: event.FindingCopies, Role: rss.RoleWorker, Bytes: sum, Procs: n}
	sent := fmt.Sprintf("process %d wrote %v to start each", l.PID, rss.Bytes(max(l.Sent, 0)))
	switch part := float64(l.Sent) / float64(least); {
	case l.Sent < 0:
		d.Confidence, sent = event.Possible, fmt.Sprintf("what process %d wrote to start them could not be read", l.PID)
	case part >= sameSize:
		d.Confidence = event.Certain
	case part >= smallest:
		d.Confidence = event.Likely
	default:
		return event.Diagnosis{}, false // it was not sent: the workers made or imported it
	}
	each := least.String()
	if most.String() != each {
		each += " to " + most.String()
	}
	who := "the worker holds its"
	if n > 1 {
		who = fmt.Sprintf("each of the %d workers holds its", n)
	}
	d.Evidence = []string{
		fmt.Sprintf("%s own copy of the data set: %s of private memory (%v in all); %s", who, each, sum, l.startedBy()),
		"private memory is what Private_Dirty grew by from the import of torch to the first batch (smaps_rollup); " + sent,
	}
	d.Advice = l.copiesAdvice(accounting)
	return d, true
}

func (l *Loader) startedBy() string {
	switch l.By {
	case "default":
		return fmt.Sprintf("%s starts them by %s", python(l.Python), l.Method)
	case "multiprocessing_context":
		return fmt.Sprintf("multiprocessing_context=%q starts them by %[1]s", l.Method)
	case "parent":
		return fmt.Sprintf("they are started by %s, as process %d was itself", l.Method, l.PID)
	}
	return fmt.Sprintf("set_start_method(%q) has them started so", l.Method)
}

// python is the version as people write it: "Python 3.14".
func python(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return "Python"
	}
	return "Python " + parts[0] + "." + parts[1]
}

// copiesAdvice is how the workers share one copy.
func (l *Loader) copiesAdvice(accounting event.Accounting) []string {
	const (
		context = `multiprocessing_context="fork"`
		kept    = "one tensor, a memory map, or data that the worker opens"
	)
	fork := context + " shares it"
	switch l.By {
	case "multiprocessing_context":
		fork = fmt.Sprintf("%s in place of %q shares it", context, l.Method)
	case "set_start_method":
		fork = `set_start_method("fork") or ` + fork
	}
	if l.CUDA {
		fork += ", as long as no worker uses CUDA: this process does"
	}
	data := "keep the data as " + kept + " (worker_init_fn)"
	object := "lists and dicts of Python objects are copied by forked workers too, as they are read: hold them in one array"
	switch {
	case l.Registered != "":
		return []string{data, fmt.Sprintf("fork is not safe here: process %d has %s open, and memory registered with it need not survive a fork", l.PID, l.Registered)}
	case accounting == event.AccountingRSS || accounting == event.AccountingNoShared:
		return []string{data, fork + fmt.Sprintf("; the limit here counts %s, which counts what is shared so for each worker again", accounting), object}
	}
	return []string{fork, data, object}
}

func copyAdvice(s *State, role rss.Role) []string {
	method := s.loaders.method()
	what, until := "the data set's samples", "until the next epoch touches the objects again"
	if role == rss.RolePoolWorker {
		what, until = "what workers share", "until new workers touch the objects"
	}
	out := []string{
		"hold " + what + " in one numpy array or torch tensor, not in lists, tuples or dicts: each look at a Python object writes its reference count",
		"strings as one np.array of dtype S, or as bytes with an array of offsets",
		s.fewer(role, "each makes its own copy"),
		"--mem for one copy more of the data set for each worker, where the program cannot change",
	}
	if method == "spawn" || method == "forkserver" {
		return out
	}
	return append(out, "recycle helps only "+until)
}
