package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// unforked is a loader of four workers of Python 3.14, each of which was sent 500 MiB
// and has 510 MiB of its own, with what a case changes.
func unforked(change func(l *Loader)) Loader {
	l := Loader{PID: 10, Workers: 4, Method: "forkserver", By: "default", Python: "3.14.10", Sent: 500 << 20,
		Own: []rss.Bytes{510 * rss.MiB, 510 * rss.MiB, 510 * rss.MiB, 510 * rss.MiB}}
	if change != nil {
		change(&l)
	}
	return l
}

func owns(each ...rss.Bytes) (all []rss.Bytes) {
	for _, own := range each {
		all = append(all, own*rss.MiB)
	}
	return all
}

// TestCopies judges what trainers and workers measured.
func TestCopies(t *testing.T) {
	const none = event.Confidence("")
	for _, c := range []struct {
		name   string
		loader Loader
		want   event.Confidence
		bytes  rss.Bytes
		says   string // in the evidence
	}{
		{"array", unforked(nil), event.Certain, 2040 * rss.MiB, "Python 3.14 starts them by forkserver"},
		{"forked", unforked(func(l *Loader) { l.Method = "fork" }), none, 0, ""},
		{"no hook told", Loader{PID: 10, Workers: 4}, none, 0, ""},
		{"one tensor: it is in shared memory", unforked(func(l *Loader) { l.Own, l.Sent = owns(10, 10, 10, 10), 5000 }), none, 0, ""},
		{"opened in the workers, nothing was sent", unforked(func(l *Loader) { l.Sent = 5000 }), none, 0, ""},
		{"a worker has not told yet", unforked(func(l *Loader) { l.Own = l.Own[:3] }), none, 0, ""},
		{"not alike", unforked(func(l *Loader) { l.Own = owns(510, 510, 510, 300) }), none, 0, ""},
		{"nearly alike", unforked(func(l *Loader) { l.Own = owns(510, 510, 510, 400) }), event.Certain, 1930 * rss.MiB, "400 MiB to 510 MiB"},
		{"too little", unforked(func(l *Loader) { l.Own, l.Sent = owns(63, 63, 63, 63), 60<<20 }), none, 0, ""},
		{"enough", unforked(func(l *Loader) { l.Own, l.Sent = owns(64, 64, 64, 64), 60<<20 }), event.Certain, 256 * rss.MiB, "64.0 MiB"},
		{"small objects: their pickle is smaller", unforked(func(l *Loader) { l.Sent = 40 << 20 }), event.Likely, 2040 * rss.MiB, "wrote 40.0 MiB"},
		{"what was sent could not be read", unforked(func(l *Loader) { l.Sent = -1 }), event.Possible, 2040 * rss.MiB, "could not be read"},
		{"one worker", unforked(func(l *Loader) { l.Workers, l.Own = 1, l.Own[:1] }), event.Certain, 510 * rss.MiB, "the worker holds"},
		{"chosen for the loader", unforked(func(l *Loader) { l.By, l.Method = "multiprocessing_context", "spawn" }), event.Certain, 2040 * rss.MiB,
			`multiprocessing_context="spawn"`},
		{"chosen for the program", unforked(func(l *Loader) { l.By, l.Method = "set_start_method", "spawn" }), event.Certain, 2040 * rss.MiB,
			`set_start_method("spawn")`},
		{"started by spawn itself", unforked(func(l *Loader) { l.By, l.Method = "parent", "spawn" }), event.Certain, 2040 * rss.MiB,
			"as process 10 was itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := c.loader.copies("")
			if ok != (c.want != none) || d.Confidence != c.want || d.Bytes != c.bytes {
				t.Fatalf("got %v, %+v", ok, d)
			}
			if !strings.Contains(strings.Join(d.Evidence, "\n"), c.says) {
				t.Errorf("evidence %q does not have %q", d.Evidence, c.says)
			}
		})
	}
}

// TestCopiesAdvice: fork comes first where it lowers what counts, with its condition
// where CUDA is used, and never where it is not safe.
func TestCopiesAdvice(t *testing.T) {
	for _, c := range []struct {
		name   string
		loader Loader
		counts event.Accounting
		first  string
		none   string // in no advice
	}{
		{"default", unforked(nil), event.AccountingCgroup, `multiprocessing_context="fork" shares it`, "CUDA"},
		{"explicit", unforked(func(l *Loader) { l.By = "multiprocessing_context" }), event.AccountingPSS, `"fork" in place of "forkserver"`, "set_start_method"},
		{"for the program", unforked(func(l *Loader) { l.By = "set_start_method" }), "", `set_start_method("fork") or`, "in place of"},
		{"CUDA", unforked(func(l *Loader) { l.CUDA = true }), "", "as long as no worker uses CUDA", "not safe"},
		{"InfiniBand", unforked(func(l *Loader) { l.Registered = "/dev/infiniband/uverbs0" }), "", "a memory map", `="fork"`},
		{"RSS counts shared pages for each", unforked(nil), event.AccountingRSS, "a memory map", "CUDA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := c.loader.copies(c.counts)
			if !ok || !strings.Contains(d.Advice[0], c.first) {
				t.Errorf("advice %q, want %q first", d.Advice, c.first)
			}
			for _, a := range d.Advice {
				if strings.Contains(a, c.none) || strings.Contains(a, `context="forkserver"`) || strings.Contains(a, `context="spawn"`) {
					t.Errorf("advice %q", a)
				}
			}
		})
	}
}

// TestCopiesOfSeveralLoaders are one finding, of all that they hold; it stays when
// they have ended.
func TestCopiesOfSeveralLoaders(t *testing.T) {
	c := scene{actors: with(job(), func(a []actor) { a[1].dies, a[2].dies = 30, 30 }), limit: 32 * rss.GiB, end: time.Minute}
	one, other := unforked(nil), unforked(func(l *Loader) { l.PID, l.Own = 12, owns(100, 100, 100, 100); l.Sent = 100 << 20 })
	c.more = func(l *Look, _ *State) {
		if l.At > 12*time.Second && l.At < 30*time.Second {
			l.Loaders = []Loader{other, one}
		}
	}
	_, last, _ := c.play(t)
	if len(last) != 1 || last[0].Finding != event.FindingCopies || last[0].Bytes != 2440*rss.MiB || last[0].Role != rss.RoleWorker {
		t.Fatalf("got %+v", last)
	}
	if !slices.ContainsFunc(last[0].Evidence, func(e string) bool { return strings.Contains(e, "2 DataLoaders") }) {
		t.Errorf("evidence %q", last[0].Evidence)
	}
	one.Own, other.Own = owns(66, 66, 66, 66), nil // 264 MiB are less than 5 % of 32 GiB
	one.Sent = 66 << 20
	if _, last, _ := c.play(t); len(last) != 0 {
		t.Errorf("got %+v", last)
	}
}
