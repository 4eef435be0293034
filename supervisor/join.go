package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// joinPatience bounds how long the file system may take: it is checked to be
// node-local, but a disk can hang.
const joinPatience = 2 * time.Second

// sweptAfter is how old the traces are of runs that were killed with all of theirs
// before they are removed.
const sweptAfter = time.Hour

// join meets the other watchers of the job on this node, and says whether we
// lead: so does who cannot meet anybody.
func (w *watcher) join(begin hold.Begin) bool {
	if w.Able.Ranks != "" {
		return true
	}
	me, name := w.member(begin), w.postName(begin)
	// Tasks may have a TMPDIR each, so it comes last here.
	parents := loader.RunParents(func(name string) string {
		if name == "TMPDIR" {
			return ""
		}
		v, _ := w.Lookup(name)
		return v
	})
	if dir, ok := w.Lookup("TMPDIR"); ok && filepath.IsAbs(dir) {
		parents = append(parents, dir)
	}
	post, led, err := joinWithin(joinPatience, func() (*node.Post, error) {
		return node.Join(w.Proc, parents, name, me)
	})
	if err != nil {
		w.early = append(w.early, limit.Warning{Part: "leader", Text: err.Error() + "; other ranks of this node are not known"})
		return true
	}
	probe.Run(func() { node.Sweep(w.Proc, filepath.Dir(filepath.Dir(post.Path())), sweptAfter) })
	w.peers.post, w.peers.me = post, me
	return led
}

// joinWithin joins, and takes the lead where nobody has it, within so long. What
// comes later is given up at once: a lead that nobody uses would have the others
// stand by for ever.
func joinWithin(patience time.Duration, join func() (*node.Post, error)) (*node.Post, bool, error) {
	type joined struct {
		post *node.Post
		led  bool
		err  error
	}
	var settled atomic.Bool // it has joined, or was given up
	r := probe.New(nil, func(join func() (*node.Post, error)) (j joined) {
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

// member is who we are, for the others.
func (w *watcher) member(begin hold.Begin) node.Member {
	m := node.Member{
		Command: w.observe.Pop.Command, Watcher: rss.ProcID{PID: w.Self}, Holder: rss.ProcID{PID: begin.Holder},
		Task: -1, Dir: w.Settings.Dir, Words: firstWords(w.Settings.Command), Since: w.Settings.Begun,
	}
	m.Watcher.Start, _ = proctree.StartTime(w.Proc, w.Self)
	m.Holder.Start, _ = proctree.StartTime(w.Proc, begin.Holder)
	if job := w.tell.Run.Job; job != nil {
		m.Step, m.Task = job.Step, job.Task
	}
	return m
}

// firstWords clips a command line to what a table shows of it.
func firstWords(args []string) []string {
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

// postName names the place where the watchers meet that judge alike: of one job on
// one node, since one boot, in one PID namespace, with the same options. Outside a job
// a watcher has a place of its own.
func (w *watcher) postName(begin hold.Begin) string {
	job, inJob := slurm.FromEnv(w.Lookup)
	if !inJob || job.StepID == "" {
		start, _ := proctree.StartTime(w.Proc, begin.Holder)
		return fmt.Sprintf("run.%d.%d", begin.Holder, start)
	}
	s := w.Settings
	space, _ := os.Readlink(w.Proc + "/self/ns/pid")
	same, err := json.Marshal([]any{
		w.tell.Run.BootID(), space,
		s.Version, s.Limit, s.LimitShare, s.Accounting, s.Rules, s.DryRun, s.Interval, s.Loader, s.Trim, s.TrimPrivate,
		s.OOMPrefer, s.NoFile, s.WorkerSignal, s.WorkerMatch, s.StopStatus, s.Grace, s.Alerts, s.AlertComment,
	})
	if err != nil {
		panic("internal error: settings cannot be encoded: " + err.Error())
	}
	sum := sha256.Sum256(same)
	return cleanNode(job.ID) + "@" + cleanNode(w.tell.Run.Node) + "." + hex.EncodeToString(sum[:4])
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
