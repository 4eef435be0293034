package node

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Member is one rsswarden run of the job on this node: a rank.
type Member struct {
	V       int        `json:"v"`
	Holder  rss.ProcID `json:"holder"`
	Watcher rss.ProcID `json:"watcher"`
	Command rss.ProcID `json:"command"`
	Step    string     `json:"step,omitempty"` // "0", "batch"; empty outside Slurm
	Task    int        `json:"task"`           // SLURM_PROCID, -1 outside Slurm
	// Dir is its run directory for loaders, empty where there is none.
	Dir   string    `json:"dir,omitempty"`
	Words []string  `json:"words"` // of the command line, the first few
	Since time.Time `json:"since"`
	// Ended is how its command ended, nil as long as it has not.
	Ended *Ended `json:"ended,omitempty"`
}

// Ended is how a command ended: one of the two.
type Ended struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
}

type known struct {
	Member
	inode uint64
}

func (p *post) Put(me Member) error {
	me.V = 1
	return p.dir.write(p.mine, me)
}

// Members returns the other members that live, by rank and PID, and those that have left
// since the last call, as they were last known. The leader removes the file of one that has
// ended, and reads it before, for it says how its command ended. One that lives is here also
// where its file was removed: see [post.Renew].
func (p *post) Members() (others, left []Member, err error) {
	names, err := p.dir.names()
	if err != nil {
		return nil, nil, err
	}
	here := map[string]bool{}
	for _, name := range names {
		id, ok := nodedir.ProcOf(name, "rank")
		if !ok || name == p.mine {
			continue
		}
		if !p.lives(id) {
			_, _ = p.member(name, id)
			if p.Leads() {
				_ = p.dir.remove(name)
			}
			continue
		}
		m, err := p.member(name, id)
		if err != nil {
			continue // it has just left, or is no file of ours
		}
		here[name] = true
		others = append(others, m.Member)
	}
	for name, m := range p.known {
		if here[name] {
			continue
		}
		if m.Ended == nil && p.lives(m.Holder) {
			others = append(others, m.Member)
		} else {
			left = append(left, m.Member)
			delete(p.known, name)
		}
	}
	order := func(a, b Member) int {
		if a.Task != b.Task {
			return a.Task - b.Task
		}
		return a.Holder.PID - b.Holder.PID
	}
	slices.SortFunc(others, order)
	slices.SortFunc(left, order)
	return others, left, nil
}

// member reads a file that was renamed into place: another content is another
// inode.
func (p *post) member(name string, id rss.ProcID) (*known, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if m := p.known[name]; m != nil && m.inode == st.Ino {
		return m, nil
	}
	m := &known{inode: st.Ino}
	if err := p.dir.read(name, &m.Member); err != nil {
		return nil, err
	}
	if m.Holder != id || m.Command.PID <= 0 || m.Watcher.PID <= 0 {
		return nil, errMalformed
	}
	p.known[name] = m
	return m, nil
}

func (p *post) lives(id rss.ProcID) bool {
	start, err := proctree.StartTime(p.proc, id.PID)
	if err != nil {
		return !proctree.Vanished(err)
	}
	return start == id.Start
}
