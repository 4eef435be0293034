package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// countTrack is how many mappings and descriptors a process has.
type countTrack struct {
	maps, fds tally
}

type tally struct {
	first, last, max int
	at               time.Duration
	n                int
	fastest          float64 // a second, over all that came at that rate or more
}

func (c *countTrack) add(at time.Duration, v *Count) {
	c.maps.add(at, v.Maps, v.MaxMaps)
	c.fds.add(at, v.FDs, v.MaxFDs)
}

func (t *tally) add(at time.Duration, v, most int) {
	if most > 0 {
		t.max = most
	}
	if v <= 0 || t.n > 0 && at <= t.at {
		return
	}
	if t.n == 0 {
		t.first = v
	} else {
		t.first = min(t.first, v)
		t.fastest = max(t.fastest, float64(v-t.last)/(at-t.at).Seconds())
	}
	t.last, t.at = v, at
	t.n++
}

const (
	// manyMaps and manyFDs are from how many on tensors that were sent one by one
	// are seen in a process: programs with GPUs have some thousand mappings.
	manyMaps, manyFDs = 8192, 512
	// part is the least part of what a process may have.
	part = 0.05
	// much is the part of the mappings from which on nothing else is likely that
	// comes so fast. A program may open hundreds of files at once.
	much = 0.25
	// rush is how many a second come where a data set is sent: pickling makes ten
	// thousand. Batches that a program keeps come more slowly.
	rush = 200
)

func (t *tally) rose(least int) bool {
	return t.n > 1 && t.fastest >= rush && t.last-t.first >= max(least, int(part*float64(t.max)))
}

// loaders is what the hook reported about DataLoaders and the tensors that they will send.
type loaders struct {
	all  []Loader
	sent map[int]event.Sharing
}

// judge finds data sets of many tensors that are sent to workers that are not forked.
func (l *loaders) judge(s *State) {
	var top *track
	for _, t := range s.tracks {
		if (t.counts.maps.rose(manyMaps) || t.counts.fds.rose(manyFDs)) && (top == nil || above(t, top)) {
			top = t
		}
	}
	pid, said := 0, event.Sharing{}
	for p, v := range l.sent {
		if (v.Near() || v.Tensors >= manyMaps) && (pid == 0 || v.Tensors > said.Tensors) {
			pid, said = p, v
		}
	}
	if top == nil && pid == 0 {
		return
	}
	// Who sends is a trainer, also where nothing but its mappings says so.
	d := event.Diagnosis{Finding: event.FindingSpawn, Confidence: event.Possible, Role: rss.RoleTrainer, PID: pid}
	if top != nil {
		d.PID = top.id.PID
		m, f := &top.counts.maps, &top.counts.fds
		if m.rose(manyMaps) && float64(m.last) >= much*float64(m.max) {
			d.Confidence = event.Likely
		}
		if m.rose(manyMaps) {
			d.Bytes = rss.Bytes(m.last-m.first) * 4 * rss.KiB
			d.Evidence = append(d.Evidence, fmt.Sprintf("mappings of process %d went from %d to %d%s, by up to %.0f a second (lines of maps)",
				d.PID, m.first, m.last, of(m.max, "vm.max_map_count"), m.fastest))
		}
		if f.rose(manyFDs) {
			d.Bytes = max(d.Bytes, rss.Bytes(f.last-f.first)*4*rss.KiB)
			d.Evidence = append(d.Evidence, fmt.Sprintf("descriptors of process %d went from %d to %d%s, by up to %.0f a second (entries of fd)",
				d.PID, f.first, f.last, of(f.max, "RLIMIT_NOFILE"), f.fastest))
		}
	}
	method := l.method()
	if pid != 0 {
		d.Confidence, d.Bytes = event.Certain, max(d.Bytes, said.Bytes)
		method = said.Method
		d.Evidence = append(d.Evidence, fmt.Sprintf("the DataLoader of process %d sends %s to %s by %s, with the %s strategy (told by the loader hook): %d mappings of %d and %d descriptors of %d",
			pid, text.Count(said.Tensors, "tensor"), text.Count(said.Workers, "worker"), said.Method, said.Strategy, said.Maps, said.MaxMaps, said.FDs, said.MaxFDs))
	} else if method == "fork" {
		return // workers that are forked are sent nothing
	}
	d.Advice = spawnAdvice(method)
	s.tell(d)
}

// above says that a process has more than another; the trainer, who sends,
// goes before workers, who receive the same.
func above(a, b *track) bool {
	if (a.role == rss.RoleTrainer) != (b.role == rss.RoleTrainer) {
		return a.role == rss.RoleTrainer
	}
	return a.counts.maps.last+a.counts.fds.last > b.counts.maps.last+b.counts.fds.last
}

// method is how workers are started, where all loaders agree.
func (l *loaders) method() (method string) {
	for i := range l.all {
		if i > 0 && l.all[i].Method != method {
			return ""
		}
		method = l.all[i].Method
	}
	return method
}

func of(most int, what string) string {
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d that %s allows", most, what)
}

func spawnAdvice(method string) []string {
	fork := `torch.multiprocessing.set_start_method("fork"), or DataLoader(multiprocessing_context="fork"), before CUDA is used: a forked worker is sent nothing`
	if method != "" {
		fork += fmt.Sprintf(" (it is %q now)", method)
	}
	return []string{
		"one tensor for the whole data set (torch.stack, or one flat tensor with offsets) or numpy arrays, not a list of tensors: each tensor costs a mapping or a descriptor",
		fork,
		"open the data in __init__ of the worker (worker_init_fn) and keep only paths in the data set",
		"ulimit -n up to its hard limit in the job script, or --nofile, for the file_descriptor strategy; vm.max_map_count is the administrator's",
	}
}

// pools are the classes of pools, each once.
func (l *loaders) pools() (kinds []string) {
	for i := range l.all {
		if k := l.all[i].Pool; k != "" && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// persistent says whether some loader keeps its workers; true where that is not known.
func (l *loaders) persistent() bool {
	return len(l.all) == 0 || slices.ContainsFunc(l.all, func(l Loader) bool { return l.Persistent })
}
