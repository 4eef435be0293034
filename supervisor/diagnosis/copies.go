package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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

// copies tells of a data set that each worker of a loader has for itself: of the loader
// with the most, and what all of them come to.
func (s *State) copies() {
	var most event.Diagnosis
	loaders, sum := 0, rss.Bytes(0)
	for i := range s.loaders {
		d, ok := s.loaders[i].copies(s.accounting)
		if !ok {
			continue
		}
		loaders++
		sum += d.Bytes
		if d.Bytes > most.Bytes {
			most = d
		}
	}
	if loaders == 0 || sum < s.matters() {
		return
	}
	if loaders > 1 {
		most.Bytes = sum
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
	d := event.Diagnosis{Finding: event.FindingCopies, Role: rss.RoleWorker, Bytes: sum}
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

// startedBy says how the workers were started, and who chose that.
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
