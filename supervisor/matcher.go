package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// settled is the age at which a process's command line is believed for good:
// a child that was forked and has not called exec yet still shows its
// parent's.
const settled = 3 * time.Second

// matcher tells which processes of the tree are workers by --worker-match.
// Reading /proc/PID/cmdline takes the process's mmap_lock and can hang for as
// long as somebody else holds that, so a goroutine of the matcher's own reads;
// everything else is called by the owner of the watcher's state.
type matcher struct {
	re      *regexp.Regexp
	proc    string
	seen    map[rss.ProcID]*match
	asks    chan rss.ProcID
	answers chan match
}

type match struct {
	id      rss.ProcID
	matches bool
	since   time.Duration // when the process was first seen
	asked   bool          // an answer is on its way
	final   bool
}

// newMatcher returns nil where pattern is empty; a nil matcher matches nothing.
func newMatcher(pattern, proc string) (*matcher, error) {
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	m := &matcher{re: re, proc: proc, seen: map[rss.ProcID]*match{}, asks: make(chan rss.ProcID, 64), answers: make(chan match, 64)}
	go m.read()
	return m, nil
}

func (m *matcher) read() {
	for id := range m.asks {
		b, err := os.ReadFile(fmt.Sprintf("%s/%d/cmdline", m.proc, id.PID))
		line := bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0}, []byte{' '})
		m.answers <- match{id: id, matches: err == nil && m.re.Match(line)}
	}
}

// update takes in what was read and asks about processes that are new, but
// for the command itself, which is no worker of its own.
func (m *matcher) update(s *rss.Sample, command int) {
	if m == nil {
		return
	}
	for more := true; more; {
		select {
		case a := <-m.answers:
			if e := m.seen[a.id]; e != nil {
				e.matches, e.asked = a.matches, false
			}
		default:
			more = false
		}
	}
	alive := make(map[rss.ProcID]*match, len(s.Procs))
	for i := range s.Procs {
		id := s.Procs[i].ID
		if id.PID == command {
			continue
		}
		e := m.seen[id]
		if e == nil {
			e = &match{id: id, since: s.Mono}
		}
		alive[id] = e
		if e.asked || e.final {
			continue
		}
		old := s.Mono-e.since >= settled
		select {
		case m.asks <- id:
			e.asked, e.final = true, old
		default: // the reader hangs; ask again at the next look
		}
	}
	m.seen = alive
}

// workers returns the processes of the sample that match and live.
func (m *matcher) workers(s *rss.Sample) []rss.ProcID {
	if m == nil {
		return nil
	}
	var ids []rss.ProcID
	for i := range s.Procs {
		p := &s.Procs[i]
		if e := m.seen[p.ID]; e != nil && e.matches && p.State != 'Z' && p.State != 'X' {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
