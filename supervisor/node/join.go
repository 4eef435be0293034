package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

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
