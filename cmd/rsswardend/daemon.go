package main

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// daemon looks at the jobs. One goroutine owns it; snap alone is read by others.
type daemon struct {
	settings
	log  *slog.Logger
	jobs *nodejobs.Node
	snap atomic.Pointer[view]

	oom    map[string]*oom
	killed map[string]killed
	file   *recordFile
	text   *promfile
	where  string            // as it was logged last
	before string            // as the last look found it
	failed map[string]string // the last reported failure, by part
	extra  time.Time         // until then no look but those of the interval

	told     bool        // the kernel reported a kill, and no look was taken since
	lines    *lineWriter // nil without --admin-comment
	leftLine bool        // one was left alone, which was logged

	heard   bool   // it reports those of all steps of the last look
	unheard string // why it does not, as it was logged last
}

func newDaemon(s settings, log *slog.Logger) *daemon {
	d := &daemon{settings: s, log: log, jobs: nodejobs.New("/proc", "/sys", s.node), oom: map[string]*oom{}, killed: map[string]killed{}, where: "?", failed: map[string]string{}}
	d.jobs.Interval = s.interval
	if s.records != "" {
		d.file = &recordFile{dir: s.records}
	}
	if s.textfile != "" {
		d.text = &promfile{dir: s.textfile}
	}
	if s.adminComment {
		d.lines = newLineWriter()
	}
	return d
}

// look takes a snapshot and passes it on: to the log, the records, scrapes and the textfile.
func (d *daemon) look() {
	snap, err := d.jobs.Scan(time.Now())
	if err != nil {
		d.complain("this look failed", err)
		return
	}
	d.complain("this look failed", nil)
	var unread error
	if snap.Failures > 0 {
		unread = snap.Failure
	}
	d.complain("files of jobs cannot be read", unread)
	d.tellWhere(&snap)
	d.tellUnheard(&snap)
	d.watchOOM(&snap)
	d.adminComment(&snap)
	v := &view{&snap, slices.Collect(maps.Values(d.killed))}
	d.snap.Store(v)
	if d.text != nil {
		d.complain("the textfile is not of now", d.text.write(v))
	}
}

// lookForKills looks before it is time where the OOM killer was at work in a job: on v1
// a step that it hit takes its count with it. told says that the kernel has reported one;
// where it reports those of all steps, a kill elsewhere on the node is no reason. Where the OOM
// killer is at work all the time the looks take a fiftieth of a core.
func (d *daemon) lookForKills(told bool) {
	d.told = d.told || told
	if now := time.Now(); now.After(d.extra) && (!d.hears() && d.jobs.Killed() || d.told) {
		d.told = false
		d.look()
		d.extra = now.Add(50 * time.Since(now))
	}
}

// hears says that the kernel reports all kills, so that none is to be looked for.
func (d *daemon) hears() bool { return d.heard && d.jobs.Hears() }

func (d *daemon) killsPause() time.Duration {
	if d.hears() {
		return heardPause
	}
	return unheardPause
}

// complain says that a part does not work, and again only where the error is another
// or the part has worked in between: without an error it does.
func (d *daemon) complain(part string, err error) {
	switch {
	case err == nil:
		delete(d.failed, part)
	case d.failed[part] != err.Error():
		d.failed[part] = err.Error()
		d.log.Warn(part, "error", err)
	}
}

// tellWhere logs how jobs can be seen here, when that changes.
func (d *daemon) tellWhere(s *nodejobs.Snapshot) {
	where := s.Where
	if len(s.Jobs) > 0 && !s.Memory {
		where += " without memory"
	}
	// A job that is being made has its directory in one hierarchy before the other: what
	// holds is what two looks find.
	again := where == d.before
	d.before = where
	if where == d.where || !again && d.where != "?" || len(s.Jobs) == 0 && s.Found && d.where != "?" && d.where != "" {
		return
	}
	d.where = where
	switch {
	case !s.Found:
		d.log.Info("no cgroup of Slurm yet: no job has run since the node started, or this site has neither proctrack/cgroup nor task/cgroup, and then no job can be seen")
	case len(s.Jobs) == 0:
		d.log.Info("no job runs", "hierarchy", s.Where)
	case !s.Memory:
		d.log.Info("jobs have no memory cgroup (ConstrainRAMSpace, JobAcctGatherType): their processes alone are told, and no limit", "hierarchy", s.Where, "jobs", len(s.Jobs))
	default:
		d.log.Info("jobs are seen by their memory cgroups", "hierarchy", s.Where, "jobs", len(s.Jobs))
	}
}

// tellUnheard logs that the kernel reports no kills in some steps, when that changes.
func (d *daemon) tellUnheard(s *nodejobs.Snapshot) {
	d.heard = s.Unheard == 0 && d.jobs.Told() != nil
	why := ""
	if s.Unheard > 0 && s.Why != nil {
		why = s.Why.Error()
	}
	if why != "" && why != d.unheard {
		d.log.Info("the kernel does not tell of OOM kills in some steps: their counters are looked at five times a second, and of a step that ends at once little is known",
			"steps", s.Unheard, "error", why)
	}
	if why != "" {
		d.unheard = why
	}
}

// stale is the number of intervals without a look after which jobs are not reported.
const stale = 5

func (d *daemon) isFresh(v *view) bool { return time.Since(v.At) <= stale*d.interval }

// scrape writes what there is to say about jobs now; of a look that is too old, only its time.
func (d *daemon) scrape(w io.Writer) error {
	v := d.snap.Load()
	if v != nil && d.isFresh(v) {
		return v.encode(w)
	}
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	if v != nil {
		set.Put(&metrics.LastLook, metrics.Place{}, seconds(v.At))
	}
	return set.Encode(w)
}

// close writes what would be lost, and gives everything back.
func (d *daemon) close() {
	for key, o := range d.oom {
		d.record(o, false, time.Now())
		delete(d.oom, key)
	}
	if d.text != nil {
		d.text.remove()
	}
	if d.file != nil {
		d.file.close()
	}
	d.jobs.Close()
}

// view is what scrapes and the textfile read. It does not change.
type view struct {
	*nodejobs.Snapshot
	dead []killed
}

// sets are [metrics.Set]s between two uses: one of 1,000 jobs has 2 MB, and to get memory from the
// kernel costs more than to fill it.
var sets = sync.Pool{New: func() any { return metrics.NewSet() }}

// encode writes it in the text format. The error is the writer's.
func (v *view) encode(w io.Writer) error {
	set := sets.Get().(*metrics.Set)
	defer sets.Put(set)
	set.Reset()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(set, v.Snapshot, v.dead)
	return set.Encode(w)
}

// limited says that there is a limit to export.
func limited(u *nodejobs.Use) bool {
	return u.Measured && u.Limit != cgroup.Unlimited && u.Limit > 0
}

// killed is a job that the OOM killer hit and that has ended. Most end within the second,
// between two scrapes: an alert on the count would never fire.
type killed struct {
	id, node string
	kills    uint64
	ended    time.Time
}

// fill puts all that is known of jobs. A sum over the series of one scope counts nothing
// twice: what has no scope is reported of steps only, and kills of jobs only, as the
// counter of a step ends with it.
func fill(set *metrics.Set, s *nodejobs.Snapshot, dead []killed) {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		at := metrics.Place{JobID: j.ID, Node: j.Node}
		fillUse(&j.Use, at, event.ScopeJob, set)
		if j.Measured {
			set.Put(&metrics.OOMKills, at, float64(j.OOMKills))
		}
		for k := range j.Steps {
			step := &j.Steps[k]
			at.Step = step.ID
			fillUse(&step.Use, at, event.ScopeStep, set)
			// The daemon cannot look into processes, so it knows no roles.
			set.Put(&metrics.Processes, at, float64(step.Processes), "")
			if !step.Measured {
				set.Put(&metrics.MemoryRSS, at, float64(step.RSS), "")
			}
		}
	}
	for _, k := range dead {
		set.Put(&metrics.OOMKills, metrics.Place{JobID: k.id, Node: k.node}, float64(k.kills))
	}
	set.Put(&metrics.OOMUnheard, metrics.Place{}, float64(s.Unheard))
	set.Put(&metrics.LastLook, metrics.Place{}, seconds(s.At))
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// fillUse puts how near a job or step is to its limit, under the former names too.
func fillUse(u *nodejobs.Use, at metrics.Place, scope event.Scope, set *metrics.Set) {
	if !u.Measured {
		return
	}
	fill := func(of *metrics.Use, by ...string) {
		set.Put(&of.Unreclaimable, at, float64(u.Unreclaimable), by...)
		set.Put(&of.Charged, at, float64(u.Charged), by...)
		if !limited(u) {
			return
		}
		limit := append([]string{string(event.LimitCgroup)}, by...)
		set.Put(&of.Used, at, float64(u.Used), limit...)
		set.Put(&of.Limit, at, float64(u.Limit), limit...)
		set.Put(&of.Ratio, at, u.Used.Of(u.Limit), limit...)
		if u.Forecast {
			set.Put(&of.TimeLeft, at, u.ETA.Seconds(), limit...)
		}
	}
	if scope == event.ScopeStep {
		fill(&metrics.OfStep, string(scope))
	} else {
		fill(&metrics.OfJob)
	}
	fill(&metrics.Former, string(scope))
}

// promfile is a file for node_exporter's textfile collector, which reads all *.prom of a
// directory at each scrape.
type promfile struct {
	dir     string
	text    bytes.Buffer
	written bool // the file is ours
}

func (t *promfile) name() string { return filepath.Join(t.dir, programName+".prom") }

// write puts a view into the file at once: a reader has the old one or the new one.
func (t *promfile) write(v *view) error {
	t.text.Reset()
	_ = v.encode(&t.text) // it has no error
	err := textfile.Replace(t.name(), t.text.Bytes())
	t.written = t.written || err == nil
	return err
}

// remove removes the file at the end: its values hold no more.
func (t *promfile) remove() {
	if t.written {
		os.Remove(t.name())
	}
}
