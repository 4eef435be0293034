// Package loader speaks with the PyTorch data loaders of a job through small
// files in a run directory.
//
// The holder calls [Prepare] before it starts the command: it makes a directory
// that only this user can enter, on a file system of this node, and gives the
// command RSSWARDEN_DIR and a PYTHONPATH that begins with the hook (package
// hook). Any failure there leaves the environment as it was. The watcher opens
// the directory with [Open] and asks the loaders to trim, to keep to a budget,
// to collect garbage or to replace a worker.
//
// The promise to the job: a Python process that finds anything unexpected does
// nothing; no thread or signal is added to it, and no socket but to a fork helper; without a
// request the batches, their order and every random draw are as without us. A trainer
// answers when it next takes a batch, which may be long after: deadlines are the caller's.
//
// README.md says what is trimmed, replaced and refused, what was run, and which files there are.
package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Control is the watcher's end of run directories: its own, and where it leads
// those of the other ranks of its node. It is for one goroutine.
type Control struct {
	dirs   []*runDir
	turn   int // which of them was looked into last
	opened time.Time

	trainers map[rss.ProcID]*trainer
	order    []rss.ProcID
	checked  time.Time // when it was last seen who lives
	staffed  time.Time // … which workers of pools do

	budget  rss.Bytes
	private bool
	forAll  settings // what SetForAll, SetRevive and SetLeft wrote; V is 0 before they did
	lastID  uint64
	pending map[uint64]*request

	withdrawn int

	Trials *Trials // of the torches of trainers; for the owner of the Control to set

	bad int // lines and files that could not be understood
}

// settle is how long after a change a directory's time stamp may still hide
// another: time stamps move with the kernel's tick.
const settle = 100 * time.Millisecond

// maxBehind is how often more is read of a log at once, of a trainer that may have
// to be told that a request is withdrawn.
const maxBehind = 16

// lifeCheck is the least time between two looks at which trainers live.
const lifeCheck = 250 * time.Millisecond

// dirsInTurn is how many run directories one Poll(false) looks into.
const dirsInTurn = 8

type runDir struct {
	path   string
	listed time.Time // modification time of the directory when it was last listed
	recent bool      // it had only just changed then: it may have again
}

// Open opens the run directory that Prepare made. What loaders reported before
// is read again by the first Poll.
func Open(dir string) (*Control, error) {
	c := &Control{
		opened:   time.Now(),
		trainers: make(map[rss.ProcID]*trainer),
		pending:  make(map[uint64]*request),
	}
	if err := c.Add(dir); err != nil {
		return nil, err
	}
	return c, nil
}

// Add opens another run directory beside those that are open. What was set for
// all holds in it too; requests of an earlier watcher there are forgotten.
func (c *Control) Add(dir string) error {
	if slices.ContainsFunc(c.dirs, func(d *runDir) bool { return d.path == dir }) {
		return nil
	}
	err := nodedir.CheckOwn(dir)
	if err == nil {
		err = c.resume(dir)
	}
	if err != nil {
		return fmt.Errorf("cannot open run directory: %w", err)
	}
	c.dirs = append(c.dirs, &runDir{path: dir})
	if c.forAll.V != 0 {
		return c.writeForAll()
	}
	return nil
}

// Drop lets go of a run directory whose owner has ended. Its trainers are as if
// they had ended, whether they have or not.
func (c *Control) Drop(dir string) []Said {
	c.dirs = slices.DeleteFunc(c.dirs, func(d *runDir) bool { return d.path == dir })
	var said []Said
	for _, id := range slices.Clone(c.order) {
		if t := c.trainers[id]; t.dir == dir {
			said = append(said, c.read(t)...)
			said = append(said, c.forget(t)...)
		}
	}
	return said
}

// Close lets go of the files. The run directory stays.
func (c *Control) Close() {
	for _, t := range c.trainers {
		t.log.close()
	}
}

// Malformed counts files and lines that could not be understood.
func (c *Control) Malformed() int { return c.bad }

// Poll returns what was reported since the last call, per trainer in the order
// of writing. It costs a few microseconds where nothing was.
//
// told says that something may have changed in a run directory, or that changes are
// not notified. Otherwise new trainers are looked for in a few directories only, in
// turn: a node may have one for each of its ranks.
func (c *Control) Poll(told bool) []Said {
	var said []Said
	for i := range c.dirs {
		if !told && i == dirsInTurn {
			break
		}
		c.turn++
		said = append(said, c.find(c.dirs[c.turn%len(c.dirs)])...)
	}
	now := time.Now()
	check := now.Sub(c.checked) >= lifeCheck
	if check {
		c.checked = now
	}
	staff := check && now.Sub(c.staffed) >= staffCheck
	if staff {
		c.staffed = now
	}
	for _, id := range slices.Clone(c.order) {
		t := c.trainers[id]
		if check && !t.gone {
			t.gone = !proctree.Lives("/proc", id)
		}
		before := t.log.offset
		said = append(said, c.read(t)...)
		for n := 0; !t.met && !t.log.atEnd() && n < maxBehind; n++ {
			said = append(said, c.read(t)...)
		}
		if !t.met && t.log.atEnd() {
			c.adoptRequests(t)
		}
		if check {
			said = append(said, c.pools(t, now, staff)...)
		}
		if t.gone && t.log.offset == before {
			said = append(said, c.forget(t)...)
		}
	}
	return said
}

func (c *Control) find(d *runDir) []Said {
	info, err := os.Stat(d.path)
	if err != nil || (info.ModTime().Equal(d.listed) && !d.recent) {
		return nil
	}
	d.listed = info.ModTime()
	d.recent = time.Since(d.listed) < settle
	names, err := readDirNames(d.path, 16*maxTrainers)
	if err != nil {
		return nil
	}
	var said []Said
	for _, name := range names {
		id, ok := nodedir.ProcOf(name, "hello")
		if t := c.trainers[id]; t != nil && t.Torch == "" {
			c.imported(d.path, t, name)
		}
		if !ok || c.trainers[id] != nil || len(c.trainers) >= maxTrainers {
			continue
		}
		s, ok := c.welcome(d.path, id, name)
		if ok {
			said = append(said, s)
		}
	}
	return said
}

func (c *Control) welcome(dir string, id rss.ProcID, name string) (Said, bool) {
	data, when, err := readSmall(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return Said{}, false
	}
	var h hello
	if err == nil {
		h, err = parseHello(data)
	}
	if err != nil || h.PID != id.PID || h.Start != id.Start {
		c.bad++
		os.Remove(filepath.Join(dir, name))
		return Said{}, false
	}
	t := &trainer{
		Trainer: Trainer{
			ID: id, Parent: h.Parent, Torch: h.Torch, Python: h.Python, CanRecycle: h.CanRecycle, Why: h.Why,
		},
		dir:     dir,
		log:     tail{path: filepath.Join(dir, nodedir.FileOf("log", id))},
		loaders: make(map[int]*Loader),
	}
	c.trainers[id] = t
	c.order = append(c.order, id)
	t.met = !t.inherit()
	if t.met && (c.budget > 0 || c.private) {
		// Where this fails the trainer has no budget; SetBudget says so next time.
		_ = c.write(t)
	}
	s := Said{Trainer: id, Old: when.Before(c.opened)}
	s.Time, s.Event, s.What, s.PID = when, event.NameLoader, event.LoaderHello, id.PID
	if !h.CanRecycle {
		s.Reason = h.Why
	}
	return s, true
}

// imported takes in that a process with pools has imported torch since.
func (c *Control) imported(dir string, t *trainer, name string) {
	data, _, err := readSmall(filepath.Join(dir, name))
	if err != nil {
		return
	}
	if h, err := parseHello(data); err == nil && h.PID == t.ID.PID && h.Start == t.ID.Start {
		t.Torch, t.CanRecycle, t.Why = h.Torch, h.CanRecycle, h.Why
	}
}

func (c *Control) read(t *trainer) []Said {
	lines, dropped, err := t.log.next()
	c.bad += dropped
	if err != nil {
		c.bad++
		return nil
	}
	var said []Said
	for _, data := range lines {
		l, err := parseLine(data)
		if err != nil {
			c.bad++
			continue
		}
		if l.What == PoolWorker {
			said = append(said, c.hired(t, &l)...)
			continue
		}
		t.apply(&l)
		s := l.said(t.ID)
		t.heard(&l, s.Last)
		if l.Helper != 0 {
			_ = c.write(t) // where it fails, it is written with the next change
		}
		s.Old = s.Time.Before(c.opened)
		if s.Last && s.Request != 0 {
			c.answered(s.Request, s.Worker)
		}
		said = append(said, s)
	}
	return said
}

func (c *Control) forget(t *trainer) []Said {
	t.log.close()
	delete(c.trainers, t.ID)
	c.order = slices.DeleteFunc(c.order, func(id rss.ProcID) bool { return id == t.ID })
	for _, kind := range []string{"hello", "ctl", "log"} {
		os.Remove(filepath.Join(t.dir, nodedir.FileOf(kind, t.ID)))
	}
	const reason = string(event.ReasonVanished)
	var said []Said
	add := func(what event.Loader, request uint64, worker int) {
		s := Said{Trainer: t.ID, Request: request, Last: request != 0}
		s.Time, s.Event, s.What, s.PID, s.Worker, s.Reason = time.Now(), event.NameLoader, what, t.ID.PID, worker, reason
		said = append(said, s)
	}
	for id, r := range c.pending {
		for _, pid := range r.pids[t.ID] {
			add(event.LoaderRefused, id, pid)
		}
		delete(r.pids, t.ID)
		if len(r.pids) == 0 {
			delete(c.pending, id)
		}
	}
	if len(t.loaders) > 0 {
		add(event.LoaderEnded, 0, 0)
	}
	return said
}

// Trainers returns the processes that said hello and live, in the order in
// which they were met.
func (c *Control) Trainers() []Trainer {
	list := make([]Trainer, 0, len(c.order))
	for _, id := range c.order {
		t := c.trainers[id]
		r := t.Trainer
		r.Loaders = t.living()
		c.markAsked(t.ID, r.Loaders)
		list = append(list, r)
	}
	return list
}

// Roles says of processes, by PID, what they are: each process that owns a
// loader is a trainer, its workers are workers, and those of pools pool workers, those
// that are coming or leaving included.
func (c *Control) Roles() map[int]rss.Role {
	roles := make(map[int]rss.Role)
	for _, t := range c.trainers {
		for _, d := range t.loaders {
			if _, ok := roles[t.ID.PID]; !ok && !d.Pool {
				roles[t.ID.PID] = rss.RoleTrainer
			}
			if d.Helper != 0 {
				roles[d.Helper] = rss.RoleForkHelper
			}
			role := rss.RoleWorker
			if d.Pool {
				role = rss.RolePoolWorker
			}
			for _, pid := range slices.Concat(d.Workers, d.Leaving, []int{d.Starting}) {
				if pid != 0 && roles[pid] != rss.RoleWorker {
					roles[pid] = role
				}
			}
		}
	}
	return roles
}

// Tested are the versions of PyTorch with which the tests run.
const Tested = "1.13, 2.6, 2.14"
