package trim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

type Target struct {
	ID      rss.ProcID
	Refusal Refusal // why nothing, None otherwise
	Detail  string  // of Refusal, for people; may be empty
	// Mappings are those that may be trimmed, largest Resident first.
	Mappings []Mapping
}

// Planner plans for the same processes again and again. What may be trimmed of
// a process it asks once a minute, and where one is new: to print /proc/PID/smaps the kernel
// walks the page tables, 40 ms a GiB of single pages, under a lock that the
// process's own faults may wait for. What is resident is asked each time, by
// PAGEMAP_SCAN, in a twentieth of that. The zero value is ready. It is not safe
// for concurrent use.
type Planner struct {
	judged map[rss.ProcID]judgement
	noScan bool // the kernel has no PAGEMAP_SCAN: smaps tells what is resident
}

// judgement says of whole mappings whether they may be trimmed. It holds for
// judgedFor: one may be locked since, which the kernel refuses to drop.
type judgement struct {
	at  time.Time
	may map[Piece]bool
}

const judgedFor = time.Minute

// Plan looks at a process as [Check] does, and reads what of it could be trimmed.
func (p *Planner) Plan(o CheckOptions) Target {
	t := Target{ID: o.ID}
	if t.Refusal, t.Detail = Check(o); t.Refusal == None {
		var err error
		if t.Mappings, err = p.mappings(o.Proc, o.ID); err != nil {
			t.Refusal, t.Detail = refusalOf(err), err.Error()
		}
	}
	return t
}

func (p *Planner) mappings(proc string, id rss.ProcID) ([]Mapping, error) {
	found, err := p.judge(proc, id)
	if err != nil {
		return nil, err
	}
	kept := found[:0]
	for _, m := range found {
		if !p.noScan || m.Resident >= Least {
			if m.Pieces, err = p.pieces(proc, id, m); err != nil {
				return nil, err
			}
		}
		if !p.noScan {
			m.Resident = 0
			for _, piece := range m.Pieces {
				m.Resident += piece.Resident
			}
		}
		if m.Resident >= Least {
			kept = append(kept, m)
		}
	}
	slices.SortStableFunc(kept, func(a, b Mapping) int { return cmp.Compare(b.Resident, a.Resident) })
	if err := sameProcess(proc, id); err != nil {
		return nil, err
	}
	return kept, nil
}

// judge returns the mappings that may be trimmed, with what is resident only
// where it was read on the way.
func (p *Planner) judge(proc string, id rss.ProcID) ([]Mapping, error) {
	now := time.Now()
	if known := p.judged[id].may; known != nil && !p.noScan && now.Sub(p.judged[id].at) < judgedFor {
		found, err := mappedNow(proc, id)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(m Mapping) bool { return rss.Bytes(m.Hi-m.Lo) < Least })
		if !slices.ContainsFunc(found, func(m Mapping) bool { _, ok := known[m.whole(id)]; return !ok }) {
			return slices.DeleteFunc(found, func(m Mapping) bool { return !known[m.whole(id)] }), nil
		}
	}
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(id.PID), "smaps"))
	if err != nil {
		return nil, fmt.Errorf("cannot open smaps of process %d: %w", id.PID, err)
	}
	defer f.Close()
	known := map[Piece]bool{}
	found, err := readSmaps(f, func(m Mapping) { known[m.whole(id)] = false })
	if err != nil {
		return nil, fmt.Errorf("cannot read smaps of process %d: %w", id.PID, err)
	}
	for _, m := range found {
		known[m.whole(id)] = true
	}
	if p.judged == nil {
		p.judged = map[rss.ProcID]judgement{}
	}
	// What was kept of ended processes goes.
	maps.DeleteFunc(p.judged, func(_ rss.ProcID, j judgement) bool { return now.Sub(j.at) >= 2*judgedFor })
	p.judged[id] = judgement{now, known}
	return found, nil
}

// whole is the mapping as one piece.
func (m *Mapping) whole(id rss.ProcID) Piece {
	return Piece{ID: id, Lo: m.Lo, Hi: m.Hi, Offset: m.Offset, Dev: m.Dev, Inode: m.Inode}
}

// sameProcess says that the PID is still that process's.
func sameProcess(proc string, id rss.ProcID) error {
	start, err := proctree.StartTime(proc, id.PID)
	if err == nil && start != id.Start {
		err = fmt.Errorf("process %v has ended: %w", id, unix.ESRCH)
	}
	return err
}

// Pace says how much of a file may be dropped in one stop of a process. That
// depends on how the page cache holds it, by factors of ten: in single pages,
// some 17 ms a GiB, or in large folios, below 1. Where other things keep the
// processors busy, what surrounds the drop takes longer than the drop, so that
// few long stops are better for all than many short ones.
//
// The zero value knows nothing yet and allows [PieceSize].
type Pace struct {
	files map[file]*samples
}

type file struct{ dev, inode uint64 }

// samples are what the last drops of a file took, a byte.
type samples struct {
	seconds [4]float64 // 0 where there is none yet
	next    int
	most    rss.Bytes // the most that was dropped in one stop
}

// The part of a stop of 2 ms that the kernel may take for dropping pages, and
// the most bytes, whatever is expected of them.
const (
	dropTime = 1200 * time.Microsecond
	maxDrop  = rss.GiB
)

// maxFiles is of how many files samples are kept: a data set may have more.
const maxFiles = 4096

// Add takes in that so much resident memory was dropped in that time.
func (p *Pace) Add(s Piece, took time.Duration) {
	if s.Resident == 0 || took <= 0 {
		return
	}
	if p.files == nil || len(p.files) >= maxFiles {
		p.files = map[file]*samples{}
	}
	f := file{s.Dev, s.Inode}
	k := p.files[f]
	if k == nil {
		k = &samples{}
		p.files[f] = k
	}
	k.seconds[k.next%len(k.seconds)] = took.Seconds() / float64(s.Resident)
	k.next++
	k.most = max(k.most, s.Resident)
}

// room is how much resident memory of a file the next stop may drop. Who was not
// given a processor took longer than it takes, so the least sample counts.
func (p *Pace) room(f file) rss.Bytes {
	k := p.files[f]
	if k == nil {
		return PieceSize
	}
	least := k.seconds[0]
	for _, s := range k.seconds[:min(k.next, len(k.seconds))] {
		least = min(least, s)
	}
	room := rss.Bytes(dropTime.Seconds() / least)
	return min(max(room, PieceSize), 4*max(k.most, PieceSize), maxDrop)
}

// Take joins the first of the pieces with those that follow it in the same
// mapping, as many as there is room for. It returns how many those are.
func (p *Pace) Take(pieces []Piece) (Piece, int) {
	joined, n := pieces[0], 1
	room := p.room(file{joined.Dev, joined.Inode})
	for _, next := range pieces[1:] {
		sameMapping := next.ID == joined.ID && next.Dev == joined.Dev && next.Inode == joined.Inode &&
			next.Lo >= joined.Hi && next.Offset-joined.Offset == next.Lo-joined.Lo
		if !sameMapping || joined.Resident+next.Resident > room || rss.Bytes(next.Hi-joined.Lo) > Reach {
			break
		}
		joined.Hi = next.Hi
		joined.Resident += next.Resident
		n++
	}
	return joined, n
}
