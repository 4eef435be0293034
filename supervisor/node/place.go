package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

const (
	// blindEvery is how often a follower looks for orders where nothing announces them.
	blindEvery = time.Second
	// settleFor is how long a follower that inherits the lead of a rank whose command has
	// ended waits for the end of its own: ranks end together as a rule.
	settleFor = time.Second
)

type Options struct {
	Proc   string     // "/proc" outside tests
	Probes *probe.Set // wakes the loop when the lead falls to us
	Bell   *wake.Bell // rings for Cause when ranks come or go, answer, or ask for something
	Cause  wake.Cause

	Kill     func(rss.ProcID, syscall.Signal) error
	Override func(status int) error // has our holder end with a status of ours
}

// Place is the place of one watcher among those of its job on this node. The zero value
// has not joined: it leads, for its own command alone. All methods are for one goroutine,
// and their times are those of its clock.
type Place struct {
	Ranks
	// Successor says that another watcher led before us, and From when we began to lead.
	Successor bool
	From      time.Duration
	// Stagger is for the leader: when a worker may be recycled.
	Stagger Stagger

	opt     Options
	post    *post // nil where we have not joined, and after we have left
	follows bool
	hears   bool // the bell rings: for the leader from the directory, for a follower from its orders

	metAt     time.Duration // when the leader last looked for members
	renewedAt time.Duration // when our place was looked after last
	told      map[rss.ProcID]bool
	asked     question
	done      uint64 // order that was carried out last
	owes      bool   // its answer is to come
	stop      ownStop
	handed    Handover

	lead    *probe.Reader[*post, error] // a follower's wait for the lead
	settled time.Duration               // when a successor begins to lead
}

// New returns a place that has not joined.
func New(opt Options) *Place { return &Place{opt: opt, told: map[rss.ProcID]bool{}} }

// joinPatience bounds how long the file system may take: it is checked to be
// node-local, but a disk can hang.
const joinPatience = 2 * time.Second

// sweptAfter is how old the traces are of runs that were killed with all of theirs
// before they are removed.
const sweptAfter = time.Hour

// Join meets the other watchers of this name below the first of the parents that is fit.
// An existing leader keeps the lead, and we follow. After an error we lead alone.
func (p *Place) Join(parents []string, name string, me Member) error {
	post, led, err := joinWithin(joinPatience, func() (*post, error) { return joinAny(p.opt.Proc, parents, name, me) })
	if err != nil {
		return err
	}
	probe.Run(func() { sweepAll(p.opt.Proc, filepath.Dir(filepath.Dir(post.dir.Name())), sweptAfter) })
	p.post, p.Me, p.follows = post, me, !led
	return nil
}

// joinWithin joins, and takes the lead where it is free, within so long. What comes later
// is given up at once: a lead that is not used would have the others follow for ever.
func joinWithin(patience time.Duration, join func() (*post, error)) (*post, bool, error) {
	type joined struct {
		post *post
		led  bool
		err  error
	}
	var settled atomic.Bool // it has joined, or was given up
	r := probe.New(nil, func(join func() (*post, error)) (j joined) {
		fault.Point("join")
		if j.post, j.err = join(); j.err == nil {
			if j.led, j.err = j.post.TryLead(); j.err != nil {
				j.post.Leave()
			}
		}
		if settled.Swap(true) && j.err == nil {
			j.post.Leave()
		}
		return j
	})
	r.Ask(join, false)
	if !r.Wait(patience) && !settled.Swap(true) {
		return nil, false, fmt.Errorf("no answer from the file system within %v", patience)
	}
	r.Wait(patience) // it has just joined
	j, _ := r.Take()
	return j.post, j.led, j.err
}

// News is what a Place has found out or was asked for, in this order.
type News struct {
	Faults []Fault
	Lines  []string // for people, about a stop of our command
	Ranks  []Change
	// Changed says that other ranks came or went, or that we begin to lead.
	Changed bool
	// Renewed says that our place was looked after: what else is in the directory may have
	// been removed too.
	Renewed bool
	// Stopped says that our command was told to end: rsswarden ends with Status.
	Stopped bool
	Status  int
	// Trim is a piece that our holder is to give back, for [Place.Answer] with Order.
	Trim  json.RawMessage
	Order uint64
}

// Fault is what did not work, in the part "leader" or "stop".
type Fault struct {
	Part string
	Err  error
}

// Change is what happened to a rank. Ended is nil where it is not known how it ended.
type Change struct {
	What event.RankNews
	Member
}

func (n *News) fault(part string, err error) {
	if err != nil {
		n.Faults = append(n.Faults, Fault{part, err})
	}
}

func (n *News) rank(what event.RankNews, m *Member, how *Ended) {
	c := Change{what, *m}
	c.Ended = how
	n.Ranks = append(n.Ranks, c)
}

// Leads says whether this watcher judges and acts; else it follows another.
func (p *Place) Leads() bool { return !p.follows }

// Deaf says that the bell rings for none of this.
func (p *Place) Deaf() { p.hears = false }

// Joined says whether others can be met.
func (p *Place) Joined() bool { return p.post != nil }

// HasLock says whether the lead is ours: a follower has it before it begins to lead.
func (p *Place) HasLock() bool { return p.post != nil && p.post.Leads() }

// Dir is the directory in which watchers meet, nil where we have not joined. Its name is its
// path, but it may be reached where that is too long for a socket's address.
func (p *Place) Dir() *os.File {
	if p.post == nil {
		return nil
	}
	return p.post.dir.File
}

func (p *Place) Has(name string) bool { return p.post.dir.has(name) }

func (p *Place) Lead(now time.Duration) (n News) {
	p.From, p.Successor = now, p.Successor || p.follows
	if p.post == nil {
		return n
	}
	err := p.opt.Bell.Watch(p.opt.Cause, unix.IN_MOVED_TO|unix.IN_DELETE, p.post.dir.Name())
	p.hears = err == nil
	n.fault("leader", err) // a new member is met at the next look
	n.rank(event.RankLeads, &p.Me, nil)
	n.Changed = true
	return n
}

// Follow begins to follow: [Place.Advance] does the rest. again says that it has been at rest.
func (p *Place) Follow(again bool) (n News) {
	if !again {
		n.rank(event.RankFollows, &p.Me, nil)
	}
	p.hearOrders(&n)
	p.lead = probe.New(p.opt.Probes, (*post).Wait)
	if !p.post.Leads() {
		p.lead.Ask(p.post, true)
	}
	return n
}

// Advance does what is due. A follower carries out what it is asked for, and begins to lead
// where the lead has fallen to it: [Place.Leads] changes.
func (p *Place) Advance(now time.Duration) (n News) {
	if p.follows {
		err, fell := p.lead.Take()
		fell = fell || !p.Successor && p.post.Leads()
		switch {
		case fell && err == nil && !p.post.Killed():
			p.Successor, p.settled = true, now+settleFor
		case fell:
			p.Successor, p.settled = true, now
		}
		if p.renew(now, &n) {
			p.hearOrders(&n)
		}
		// A successor does what the leader before it asked for last: that one may have left
		// as soon as it had.
		p.obey(now, &n)
		if err != nil {
			// Nothing tells us of the leader's end now. Two that watch are a nuisance, none
			// is the end of jobs.
			n.fault("leader", err)
			p.post.Leave()
			p.post = nil
		}
		p.follows = !p.Successor || now < p.settled
	}
	p.stop.kill(now, p.Me.Command, &p.opt, &n)
	return n
}

// renewEvery is how often our place among the watchers is looked after.
const renewEvery = time.Minute

// renew keeps our place: what cleans /tmp may have removed it. It says whether our file for
// orders is another one now.
func (p *Place) renew(now time.Duration, n *News) (reopened bool) {
	if now-p.renewedAt < renewEvery {
		return false
	}
	p.renewedAt, n.Renewed = now, true
	reopened, err := p.post.Renew(p.Me)
	n.fault("leader", err)
	return reopened
}

// Within shortens a pause to what Advance must not come later than.
func (p *Place) Within(now, pause time.Duration) time.Duration {
	if p.follows && !p.hears {
		pause = min(pause, blindEvery)
	}
	if p.follows && p.Successor {
		pause = min(pause, p.settled-now)
	}
	return p.stop.within(now, pause)
}

// Leave gives up the lead, if we have it, and our place. It says how our command ended, nil
// where that is not known.
func (p *Place) Leave(how *Ended) {
	switch {
	case p.post == nil:
		return
	case how != nil:
		p.post.End(p.Me, *how)
	default:
		p.post.Leave()
	}
	p.post = nil
}

// Name names the place where the watchers meet that judge alike: of one job on one node,
// since one boot, in one PID namespace, with the same options. Outside a job a watcher has a
// place of its own, by its holder.
func Name(proc string, lookup func(string) (string, bool), holder int, options []any) string {
	job, inJob := slurm.FromEnv(lookup)
	if !inJob || job.StepID == "" {
		start, _ := proctree.StartTime(proc, holder)
		return fmt.Sprintf("run.%d.%d", holder, start)
	}
	boot, _ := procfile.Read(proc+"/sys/kernel/random/boot_id", procfile.Small)
	space, _ := os.Readlink(proc + "/self/ns/pid")
	same, err := json.Marshal(append([]any{strings.TrimSpace(string(boot)), space}, options...))
	if err != nil {
		panic("internal error: settings cannot be encoded: " + err.Error())
	}
	sum := sha256.Sum256(same)
	return cleanNode(job.ID) + "@" + cleanNode(slurm.NodeName(lookup)) + "." + hex.EncodeToString(sum[:4])
}

// cleanNode makes a name fit for one element of a path.
func cleanNode(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c == '/' || c == 0 || c == '@' {
			b[i] = '_'
		}
	}
	return string(b[:min(len(b), 100)])
}

// FirstWords clips a command line to what a table shows of it.
func FirstWords(args []string) []string {
	const most = 240
	size := 0
	for i, a := range args {
		if size += len(a) + 1; size > most {
			if i == 0 {
				return []string{a[:most]}
			}
			return args[:i]
		}
	}
	return args
}

// firedName is the file in which the leader keeps what the next leader must know to do
// nothing twice. It goes with the directory.
const firedName = "fired"

// Handover separates what the leader keeps for the next one from what it kept before.
type Handover struct {
	Changes uint64 // of the ladder
	Waiting uint64 // decision that has not been begun
	Alerts  string // those that receivers may believe to fire
	kept    bool
}

// Keep keeps what encode returns, a JSON value of at most 64 KiB, for the next leader, where
// it has changed. It comes before the actions of a step: killed
// between the two, a leader has left one action out, where it would else have one done twice.
func (p *Place) Keep(is Handover, encode func() ([]byte, error)) error {
	is.kept = true
	if p.post == nil || is == p.handed || !p.handed.kept && is.Changes == 0 {
		return nil
	}
	p.handed = is
	data, err := encode()
	if err != nil {
		return err
	}
	return p.post.dir.write(firedName, json.RawMessage(data))
}

// Kept returns what the leader before us kept, nil for nothing.
func (p *Place) Kept() (data json.RawMessage, err error) {
	if p.post == nil {
		return nil, nil
	}
	err = p.post.dir.read(firedName, &data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SomeoneSince says that a rank which is here was here at that time since boot. What was
// kept by ranks that were all killed is about another job step.
func (r *Ranks) SomeoneSince(at time.Duration) bool {
	const tick = time.Second / 100 // USER_HZ, in which /proc/PID/stat counts
	before := func(m Member) bool { return m.Holder.Start > 0 && m.Holder.Start < uint64(at/tick) }
	return before(r.Me) || slices.ContainsFunc(r.Others, before)
}
