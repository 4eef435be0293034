package observe

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// FilePages reads on the side how much processes have mapped of files: a forecast knows by
// it how far the pages of files in memory can grow. An LMDB that is read at random
// flattens at the size of the file in each process.
type FilePages struct {
	*probe.Reader[[]rss.ProcID, []spansAnswer]
	costs probe.Bucket // which holds nothing: what was spent is paid before the next
	known map[rss.ProcID]*spansKnown
}

type spansAnswer struct {
	id    rss.ProcID
	spans proctree.Spans
	err   error
}

type spansKnown struct {
	most rss.Bytes     // 0 where it could not be read
	at   time.Duration // when
	seen time.Duration // when the process was there last
}

const (
	// spansShare is the part of a core for these readings, and spansAtOnce how many
	// processes one has.
	spansShare, spansAtOnce = 0.002, 16
	// spansAge is how long one counts.
	spansAge = 30 * time.Second
	// spansSoon is from when on they are made while all limits are far, for what the whole
	// job needs, and spansSeldom how long one counts then.
	spansSoon, spansSeldom = time.Minute, 10 * time.Minute
	// spansFrom is how full a limit must be: a forecast is made from half on.
	spansFrom = 0.4
	// leastPages is how much of files a process must have in memory to be read.
	leastPages = 8 * rss.MiB
	// codeRead is the part of its programs and libraries that a process ever reads, at a
	// guess: that of Python with torch is a sixth to a third.
	codeRead = 4
)

// NewFilePages reads below proc.
func NewFilePages(proc string) *FilePages {
	tree := proctree.New(proc)
	return &FilePages{
		costs: probe.Bucket{Share: spansShare}, known: map[rss.ProcID]*spansKnown{},
		Reader: probe.New(nil, func(ids []rss.ProcID) (all []spansAnswer) {
			fault.Point("mapped")
			for _, id := range ids {
				s, err := tree.Spans(id)
				all = append(all, spansAnswer{id, s, err})
			}
			return all
		}),
	}
}

// Update takes in what was read, asks for what is due where a limit is near enough for a
// forecast, and sets [rss.Proc.FileMost] of each process. What one has that was not read
// yet is taken to be as much as any other has: workers map the same files.
func (f *FilePages) Update(now time.Duration, limits []event.Limit, lists ...[]rss.Proc) {
	if f == nil {
		return
	}
	if got, ok := f.Take(); ok {
		f.costs.Fill(now)
		for _, a := range got {
			f.costs.Spend(a.spans.Cost)
			k := &spansKnown{at: now, seen: now}
			if a.err == nil {
				k.most = a.spans.Data + a.spans.Code/codeRead
			}
			f.known[a.id] = k
		}
	}
	near := slices.ContainsFunc(limits, func(l event.Limit) bool {
		return event.ActionTrim.Fits(&l).OK && l.UsedMax.Of(l.Limit) >= spansFrom
	})
	wanted, age := near || now >= spansSoon, spansAge
	if !near {
		age = spansSeldom
	}
	if !wanted && len(f.known) == 0 {
		return
	}
	free := wanted && !f.Busy() && f.costs.Fill(now) >= 0
	var most rss.Bytes
	var due []rss.ProcID
	for _, list := range lists {
		for i := range list {
			p := &list[i]
			k := f.known[p.ID]
			if k != nil {
				k.seen, most = now, max(most, k.most)
			}
			if free && p.File >= leastPages && k.due(now, age, p.File) && len(due) < spansAtOnce {
				due = append(due, p.ID)
			}
		}
	}
	if len(due) > 0 {
		f.Ask(due, false)
		maps.DeleteFunc(f.known, func(_ rss.ProcID, k *spansKnown) bool { return k.seen < now })
	}
	if most == 0 {
		return
	}
	for _, list := range lists {
		for i := range list {
			p := &list[i]
			switch k := f.known[p.ID]; {
			case k != nil && k.most > 0:
				p.FileMost = max(k.most, p.File)
			case p.File >= leastPages:
				p.FileMost = max(most, p.File)
			default:
				p.FileMost = p.File
			}
		}
	}
}

// due says that a process is to be read, for the first time or again: soon where it has more
// in memory than it had mapped, and so has opened another file.
func (k *spansKnown) due(now, age time.Duration, file rss.Bytes) bool {
	return k == nil || now-k.at >= age || k.most > 0 && file > k.most && now-k.at >= spansAge/10
}
