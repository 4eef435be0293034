package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// ErrNoProcess says that no process is known that could do it.
var ErrNoProcess = errors.New("no loader process")

type request struct {
	what event.Action         // ActionTrim, ActionGC or ActionRecycle
	mode event.Mode           // of a recycle
	pids map[rss.ProcID][]int // those that have not answered yet, by trainer

	asked time.Time
	pool  []int // those of pools
	late  bool  // one of a pool was at its task for so long that the action waits no more
}

// ctl is the content of a file ctl.PID.START. The hook compares the file's
// inode and time once a batch and reads it when they changed.
type ctl struct {
	V       int          `json:"v"`
	Last    uint64       `json:"last"`                   // the newest id given out
	Budget  rss.Bytes    `json:"budget"`                 // bytes mapped from files and shared memory a process may hold; 0: any
	Private bool         `json:"trim_private,omitempty"` // trims take read-only private mappings of files too
	Left    *rss.Bytes   `json:"left,omitempty"`         // of the memory limits for this trainer, where it has a fork helper
	Trim    []ctlSeveral `json:"trim"`
	GC      []ctlSeveral `json:"gc,omitempty"`
	Recycle []ctlRecycle `json:"recycle"`
}

// ctlSeveral asks several processes, each of which answers.
type ctlSeveral struct {
	ID   uint64 `json:"id"`
	PIDs []int  `json:"pids"`
}

type ctlRecycle struct {
	ID     uint64     `json:"id"`
	Worker int        `json:"worker"`
	Mode   event.Mode `json:"mode"`
}

// settings is the content of the file settings. It holds for all: a child of
// multiprocessing says hello only once it owns a loader, too late for a ctl file.
type settings struct {
	V      int       `json:"v"`
	NoFile int       `json:"nofile"` // what the soft RLIMIT_NOFILE may be raised to; 0: it is left
	Forks  bool      `json:"forks"`  // pool workers are recycled where that may hang their pool
	Revive int       `json:"revive"` // whose work is done again where it dies: 1 [event.ReviveOOM], 2 [event.ReviveAny]
	Left   rss.Bytes `json:"left"`   // of the memory limits for each trainer; 0: it is not known
}

const settingsFile = "settings"

// SetBudget sets what each process that fetches data may keep mapped from
// files and shared memory, in bytes of statm's share; above it the process
// trims itself, between two records. 0 takes the budget away. It holds for
// trainers that come later too.
func (c *Control) SetBudget(budget rss.Bytes) error {
	c.budget = budget
	return c.writeToAll()
}

func (c *Control) Budget() rss.Bytes { return c.budget }

// SetPrivate says whether a trim, asked for or by the budget, also takes
// private mappings of files. They are taken only where nothing in them can be
// lost: read-only, at least 64 MiB of a regular file that is no ELF object,
// without one anonymous, dirty or swapped page; package hook says how that is
// made sure of. It holds for trainers that come later too.
func (c *Control) SetPrivate(on bool) error {
	c.private = on
	return c.writeToAll()
}

// SetForAll says how far a process may raise its soft RLIMIT_NOFILE for itself and
// the workers it spawns, where its data set takes more descriptors than that; 0: not
// at all. The hard limit and 65,536 bound it too. forks says that workers of a
// ProcessPoolExecutor that forks are recycled, though it then forks beside its threads, and
// those whose initializer hands something out.
func (c *Control) SetForAll(noFile int, forks bool) error {
	c.forAll.NoFile, c.forAll.Forks = max(noFile, 0), forks
	return c.writeForAll()
}

// SetRevive says which workers are replaced where they die, of loaders that begin later.
func (c *Control) SetRevive(which event.Revive) error {
	c.forAll.Revive = map[event.Revive]int{event.ReviveOOM: 1, event.ReviveAny: 2}[which]
	return c.writeForAll()
}

// leastLeft is what is too little for a fork helper.
const leastLeft = 256 * rss.MiB

// SetLeft says how much memory is left below the limits for each trainer, which may have a
// fork helper only where it takes a small part of that, and lets go of it where it may
// take more. Less than that is written, and again only when less is left, or twice as much.
func (c *Control) SetLeft(left rss.Bytes) error {
	if left < leastLeft {
		left = 0
	}
	if left >= c.forAll.Left && left/2 <= c.forAll.Left {
		return nil
	}
	c.forAll.Left = left - left/4
	return errors.Join(c.writeForAll(), c.writeToAll())
}

func (c *Control) writeForAll() error {
	c.forAll.V = 1
	data, err := json.Marshal(c.forAll)
	if err != nil {
		return fmt.Errorf("cannot write settings: %w", err)
	}
	var errs []error
	for _, d := range c.dirs {
		if err := replaceFile(filepath.Join(d.path, settingsFile), data); err != nil {
			errs = append(errs, fmt.Errorf("cannot write settings: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c *Control) writeToAll() error { return c.writeTo(maps.Keys(c.trainers)) }

func (c *Control) writeTo(ids iter.Seq[rss.ProcID]) error {
	var errs []error
	for id := range ids {
		if t := c.trainers[id]; t != nil {
			errs = append(errs, c.write(t))
		}
	}
	return errors.Join(errs...)
}

// Trim asks the processes with these PIDs, or all that fetch data where none
// is given, to drop their mappings of files at their next batch. It returns
// the id that the answers carry, one trimmed or refused for each of asked.
// Processes that are unknown are left out.
func (c *Control) Trim(pids ...int) (id uint64, asked []int, err error) {
	return c.askSeveral(event.ActionTrim, (*trainer).trimmable, pids)
}

// GC asks the processes with these PIDs, or all that own a loader or fetch data
// where none is given, to collect reference cycles and to give free memory back
// to the system at their next batch. It returns the id that the answers carry,
// one collected or refused for each of asked. A trainer pauses meanwhile;
// its answer says for how long.
func (c *Control) GC(pids ...int) (id uint64, asked []int, err error) {
	return c.askSeveral(event.ActionGC, (*trainer).collectable, pids)
}

func (c *Control) askSeveral(what event.Action, able func(*trainer) []int, pids []int) (id uint64, asked []int, err error) {
	r := &request{what: what, pids: make(map[rss.ProcID][]int)}
	for _, t := range c.trainers {
		for _, pid := range able(t) {
			if (len(pids) == 0 || slices.Contains(pids, pid)) && !slices.Contains(asked, pid) {
				r.pids[t.ID] = append(r.pids[t.ID], pid)
				asked = append(asked, pid)
			}
		}
	}
	if len(asked) == 0 {
		return 0, nil, fmt.Errorf("cannot ask for a %s: %w", what, ErrNoProcess)
	}
	id, err = c.ask(r)
	return id, asked, err
}

// Recycle asks the trainer of the worker with this PID to replace it, or, where it is
// one of a pool, the worker itself to end after its task, so that the pool starts another. The
// answers carry the returned id: accepted, started, swapped and at last
// recycled, or refused with a reason. Where accepted has ReasonDeferred, the
// loader's next epoch is waited for, however long that takes, and all its
// workers are replaced then; each is reported as recycled, with that reason,
// those that were not asked for without an id. A pool's worker that is at its task for
// long is reported as accepted with ReasonTask; it is waited for, for [TaskLimit] at most.
func (c *Control) Recycle(worker int, mode event.Mode) (id uint64, err error) {
	for _, t := range c.trainers {
		for _, d := range t.loaders {
			if slices.Contains(d.Workers, worker) {
				return c.ask(&request{what: event.ActionRecycle, mode: mode, pids: map[rss.ProcID][]int{t.ID: {worker}}})
			}
		}
	}
	return 0, fmt.Errorf("cannot ask for a recycle of %d: %w", worker, ErrNoProcess)
}

// Cancel takes a request back. What was begun is finished, and reported.
func (c *Control) Cancel(id uint64) error {
	r, ok := c.pending[id]
	if !ok {
		return nil
	}
	delete(c.pending, id)
	return c.writeTo(maps.Keys(r.pids))
}

func (c *Control) ask(r *request) (uint64, error) {
	c.lastID++
	id := c.lastID
	r.asked = time.Now()
	for t, pids := range r.pids {
		for _, pid := range pids {
			if c.trainers[t].staff[pid] != nil {
				r.pool = append(r.pool, pid)
			}
		}
	}
	c.pending[id] = r
	if err := c.writeTo(maps.Keys(r.pids)); err != nil {
		delete(c.pending, id)
		return 0, err
	}
	return id, nil
}

func (c *Control) answered(id uint64, pid int) {
	r, ok := c.pending[id]
	if !ok {
		return
	}
	for t, pids := range r.pids {
		r.pids[t] = slices.DeleteFunc(pids, func(p int) bool { return p == pid })
		if len(r.pids[t]) == 0 {
			delete(r.pids, t)
		}
	}
	if len(r.pids) == 0 {
		delete(c.pending, id)
	}
}

func (c *Control) write(t *trainer) error {
	if !t.met {
		return nil // it gets this when all its reports are read
	}
	f := ctl{V: 1, Last: c.lastID, Budget: c.budget, Private: c.private, Trim: []ctlSeveral{}, Recycle: []ctlRecycle{}}
	for _, d := range t.loaders {
		if d.Helper != 0 {
			f.Left = &c.forAll.Left
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.pending)) {
		r := c.pending[id]
		pids := r.pids[t.ID]
		switch {
		case len(pids) == 0:
		case r.what == event.ActionTrim:
			f.Trim = append(f.Trim, ctlSeveral{id, pids})
		case r.what == event.ActionGC:
			f.GC = append(f.GC, ctlSeveral{id, pids})
		default:
			f.Recycle = append(f.Recycle, ctlRecycle{id, pids[0], r.mode})
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("cannot write control file: %w", err)
	}
	if bytes.Equal(data, t.ctl) {
		return nil
	}
	path := filepath.Join(t.dir, nodedir.FileOf("ctl", t.ID))
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("cannot write control file: %w", err)
	}
	t.ctl = data
	return nil
}

// resume finds the newest id that an earlier watcher gave out.
func (c *Control) resume(dir string) error {
	names, err := readDirNames(dir, 16*maxTrainers)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := nodedir.ProcOf(name, "ctl"); !ok {
			continue
		}
		data, _, err := readSmall(filepath.Join(dir, name))
		var f ctl
		if err == nil && json.Unmarshal(data, &f) == nil && f.Last < 1<<53 {
			c.lastID = max(c.lastID, f.Last)
		}
	}
	return nil
}

// replaceFile writes path in one step. The user's processes can write here too.
func replaceFile(path string, data []byte) error {
	return nodedir.WriteRenamed(unix.AT_FDCWD, path+".tmp", path, 0o600, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// inherited is a recycle that an earlier watcher asked for. Trainers look at requests
// between two batches, which may be long after. What none has accepted is withdrawn, or
// it would be carried out beside what we ask for; an accepted recycle stays asked for:
// one that has begun goes on in any case, and one that waits for the loader's next epoch
// would be forgotten.
type inherited struct {
	ctlRecycle
	n        int // the loader that accepted it, 0 before that
	deferred bool
	answered bool
}

// inherit reads the control file of a trainer that was just met. It
// says whether there is anything that the trainer may not have heard of yet.
func (t *trainer) inherit() bool {
	data, _, err := readSmall(filepath.Join(t.dir, nodedir.FileOf("ctl", t.ID)))
	var f ctl
	if err != nil || json.Unmarshal(data, &f) != nil {
		return false
	}
	t.ctl = data
	if len(f.Trim)+len(f.GC)+len(f.Recycle) == 0 {
		return false
	}
	t.before = make(map[uint64]*inherited, len(f.Recycle))
	for _, r := range f.Recycle {
		t.before[r.ID] = &inherited{ctlRecycle: r}
	}
	return true
}

// heard takes in what a trainer says to what an earlier watcher asked for.
func (t *trainer) heard(l *line, last bool) {
	if l.What == event.LoaderEnded {
		for _, r := range t.before {
			r.answered = r.answered || r.n != 0 && r.n == l.N
		}
		return
	}
	if r := t.before[l.ID]; r != nil && l.ID != 0 {
		r.answered = r.answered || last
		if l.What == event.LoaderAccepted {
			r.n, r.deferred = l.N, l.Why == string(event.ReasonDeferred)
		}
	}
}

// adoptRequests takes over the pending requests of a trainer, once all its reports are read.
func (c *Control) adoptRequests(t *trainer) {
	t.met = true
	for id, r := range t.before {
		switch {
		case r.answered:
		case r.n == 0:
			c.withdrawn++
		case c.pending[id] == nil:
			c.pending[id] = &request{what: event.ActionRecycle, mode: r.Mode, pids: map[rss.ProcID][]int{t.ID: {r.Worker}}}
		}
	}
	// Where this fails the next write says so, a budget or a request.
	_ = c.write(t)
}

// Withdrawn counts recycles that an earlier watcher had asked for and no trainer had
// accepted: they are asked for no more. A trainer that read one just before reports soon
// that it has accepted it.
func (c *Control) Withdrawn() int { return c.withdrawn }

// Inherited says that a recycle goes on, or may yet be begun, which an earlier
// watcher has asked for, but for those that wait for their loader's next epoch.
func (c *Control) Inherited() bool {
	for _, t := range c.trainers {
		if !t.met {
			return true
		}
		for _, r := range t.before {
			if r.n != 0 && !r.deferred && !r.answered {
				return true
			}
		}
	}
	return false
}
