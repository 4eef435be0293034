package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/adminline"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// When the line of a job is written. slurmctld takes 12 ms for each, and there may be
// ten thousand jobs: a job of a day has some 40 lines from each node.
const (
	lineFirst = time.Minute      // after a job was seen first, and up to as much later, so that many do not come at once
	lineGrown = 1.05             // again when the peak has grown so much …
	lineSoon  = time.Minute      // … and so long has passed
	lineAgain = 10 * time.Minute // else after so long, or a tenth of the job's age
	lineOOM   = 5 * time.Second  // after an OOM kill: the job may be about to end
	lineNodes = 10               // a job with more nodes has its lines rarer in proportion, up to lineMost
	lineMost  = 6.0
)

const (
	// slurmPatience is how long scontrol or sacctmgr may take.
	slurmPatience = 10 * time.Second
	// writerShare is the share of a second of slurmctld's that one node may take.
	writerShare = 20
	// Where Slurm does not answer, nothing is asked for so long, twice as long each time.
	retryFirst, retryMost = 30 * time.Second, 10 * time.Minute
	// Jobs whose last line could not be written while they ran are kept, so many at most.
	maxKept = 1000
	keptFor = 24 * time.Hour
)

// share is what is known of a job on one node.
type share struct {
	node        string
	limit, peak rss.Bytes // limit is 0 for none
	cache       rss.Bytes
	kills       uint64
	cpu         *float64
}

// jobLine is a job whose line is kept.
type jobLine struct {
	id        string
	shares    map[string]share // by node: several slurmd may run here
	seen      time.Time        // first
	ended     time.Time        // zero while it runs
	nodes     int              // of the job; 0 while that is not known
	wrote     time.Time        // … the last line, or tried to
	peak      rss.Bytes        // … with this, of all nodes
	kills     uint64
	left      bool // alone, for it is not ours
	unwritten bool // something notable is in no line
	writing   bool
}

// lineWriter writes a line into the AdminComment of each job. The daemon's goroutine owns it; one
// job at a time is written beside it.
type lineWriter struct {
	jobs  map[string]*jobLine
	busy  bool
	after time.Time // nothing before this
	retry time.Duration
	self  string
	done  chan lineResult
	run   func(ctx context.Context, name string, args ...string) ([]byte, error) // a command of Slurm's
}

type lineResult struct {
	id    string
	nodes int
	left  bool
	gone  bool // Slurm has forgotten the job, or keeps no line after its end
	err   error
}

func newLineWriter() *lineWriter {
	start, _ := proctree.StartTime("/proc", os.Getpid())
	return &lineWriter{
		jobs: map[string]*jobLine{}, self: fmt.Sprintf("%d.%d", os.Getpid(), start), done: make(chan lineResult, 1), run: slurmCommand,
	}
}

// look takes in a snapshot and has what is due written. cpu tells a job's processor time.
func (w *lineWriter) look(s *nodejobs.Snapshot, cpu func(*nodejobs.Job) (time.Duration, bool)) {
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.Measured && slurm.IsJob(j.ID) && !slurm.IsSLUID(j.ID) {
			w.see(j, s.At, cpu)
		}
	}
	for i := range s.Ended {
		e := &s.Ended[i]
		line := w.jobs[e.ID]
		if line == nil && e.OOMKills > 0 && slurm.IsJob(e.ID) && !slurm.IsSLUID(e.ID) { // it came and went between two looks
			line = w.see(&e.Job, s.At, nil)
		}
		if line == nil {
			continue
		}
		known := line.shares[e.Node]
		known.kills, known.peak = max(known.kills, e.OOMKills), max(known.peak, e.Peak)
		line.shares[e.Node] = known
		line.ended = s.At
		if line.notable(); line.left || !line.unwritten && !line.writing {
			delete(w.jobs, e.ID)
		}
	}
	maps.DeleteFunc(w.jobs, func(_ string, l *jobLine) bool { return !l.ended.IsZero() && s.At.Sub(l.ended) > keptFor })
	w.next(s.At)
}

func (w *lineWriter) see(j *nodejobs.Job, now time.Time, cpu func(*nodejobs.Job) (time.Duration, bool)) *jobLine {
	line := w.jobs[j.ID]
	if line == nil || !line.ended.IsZero() { // requeued: another time that it runs
		if line == nil && len(w.jobs) >= 10*maxKept {
			return nil
		}
		line = &jobLine{id: j.ID, seen: j.Since, shares: map[string]share{}}
		w.jobs[j.ID] = line
	}
	known := line.shares[j.Node]
	is := share{
		node: j.Node, peak: max(known.peak, j.Peak, j.Unreclaimable), kills: max(known.kills, j.OOMKills),
		cache: max(known.cache, j.Charged.Sub(j.Unreclaimable)), cpu: known.cpu,
	}
	if limited(&j.Use) {
		is.limit = j.Limit
	}
	line.shares[j.Node] = is
	line.notable()
	if cpu != nil && line.due(now) { // it is read for who is written alone
		if used, ok := cpu(j); ok {
			seconds := float64(used.Milliseconds()) / 1000
			is.cpu = &seconds
			line.shares[j.Node] = is
		}
	}
	return line
}

func (l *jobLine) sums() (peak rss.Bytes, kills uint64) {
	for _, s := range l.shares {
		peak, kills = peak+s.peak, kills+s.kills
	}
	return peak, kills
}

// notable finds out whether something is in no line that belongs there.
func (l *jobLine) notable() {
	peak, kills := l.sums()
	l.unwritten = kills > l.kills || !l.wrote.IsZero() && float64(peak) > lineGrown*float64(l.peak)
}

// due says that the line of a job is to be written.
func (l *jobLine) due(now time.Time) bool {
	_, kills := l.sums()
	rare := min(max(1, float64(l.nodes)/lineNodes), lineMost)
	since, age := now.Sub(l.wrote), now.Sub(l.seen)
	switch {
	case l.left:
		return false
	case kills > l.kills:
		return since >= lineOOM
	case !l.ended.IsZero():
		return l.unwritten
	case l.wrote.IsZero():
		h := fnv.New32a()
		h.Write([]byte(l.id))
		return age >= lineFirst+time.Duration(float64(lineFirst)*rare*float64(h.Sum32()%1000)/1000)
	case l.unwritten:
		return since >= time.Duration(rare*float64(lineSoon))
	}
	return since >= max(time.Duration(rare*float64(lineAgain)), age/10)
}

// next begins to write the line that has waited longest.
func (w *lineWriter) next(now time.Time) {
	if w.busy || now.Before(w.after) {
		return
	}
	var first *jobLine
	for _, l := range w.jobs {
		if l.due(now) && (first == nil || cmp.Or(first.ended.Compare(l.ended), l.wrote.Compare(first.wrote)) < 0) {
			first = l
		}
	}
	if first == nil {
		return
	}
	w.busy, first.writing = true, true
	copied := *first
	copied.shares = maps.Clone(first.shares)
	first.wrote, first.unwritten = now, false
	first.peak, first.kills = first.sums()
	go func() {
		began := time.Now()
		r := lineResult{id: copied.id}
		defer func() {
			if what := recover(); what != nil {
				r.err = fmt.Errorf("internal error: %v", what)
			}
			time.Sleep(writerShare * min(time.Since(began), time.Second))
			w.done <- r
		}()
		w.write(&copied, now, &r)
	}()
}

// heard takes in how a write ended. The error is for the log, nil where the part works.
func (w *lineWriter) heard(r lineResult, now time.Time) error {
	w.busy = false
	if l := w.jobs[r.id]; l != nil {
		l.writing, l.nodes, l.left = false, max(l.nodes, r.nodes), l.left || r.left
		switch {
		case r.err != nil: // all of it again
			l.peak, l.kills, l.unwritten = 0, 0, true
		case r.gone, !l.ended.IsZero() && !l.unwritten:
			delete(w.jobs, r.id)
		}
	}
	if r.err == nil {
		w.retry, w.after = 0, time.Time{}
		w.next(now)
		return nil
	}
	w.retry = min(max(2*w.retry, retryFirst), retryMost)
	w.after = now.Add(w.retry)
	w.drop()
	return r.err
}

// drop bounds what is kept of jobs that have ended: the oldest go.
func (w *lineWriter) drop() {
	var over []*jobLine
	for _, l := range w.jobs {
		if !l.ended.IsZero() {
			over = append(over, l)
		}
	}
	slices.SortFunc(over, func(a, b *jobLine) int { return b.ended.Compare(a.ended) })
	for _, l := range over[min(len(over), maxKept):] {
		delete(w.jobs, l.id)
	}
}

// write reads the line of a job, puts what is known here into it and writes it. Where another node
// writes at the same moment, one of the two is lost, until that node's next line.
func (w *lineWriter) write(l *jobLine, now time.Time, r *lineResult) {
	ctx, cancel := context.WithTimeout(context.Background(), slurmPatience)
	defer cancel()
	const noSuchJob = "Invalid job id"
	out, err := w.run(ctx, "scontrol", "show", "job", "-d", "-o", l.id)
	if err != nil && !strings.Contains(err.Error(), noSuchJob) {
		r.err = fmt.Errorf("cannot ask about job %s: %w", l.id, err)
		return
	}
	d, bad := slurm.ParseJobDetails(out, l.id)
	if r.gone = err != nil || errors.Is(bad, slurm.ErrNoJob); r.gone {
		return
	}
	if r.left = bad != nil; r.left { // of this job alone, or of its array
		return
	}
	r.nodes = len(d.Nodes)
	line, ours := w.merge(l, &d, now)
	if r.left = !ours; r.left {
		return
	}
	text, err := adminline.Encode(line)
	if err != nil {
		r.err, r.left = err, true
		return
	}
	if d.State == "RUNNING" || d.State == "SUSPENDED" {
		_, err = w.run(ctx, "scontrol", "update", "JobId="+d.Name, "AdminComment="+text)
		if err == nil {
			return
		}
		if r.gone = strings.Contains(err.Error(), noSuchJob); r.gone {
			return
		}
		if !strings.Contains(err.Error(), "already finished") {
			r.err = fmt.Errorf("cannot write the AdminComment of job %s: %w", d.Name, err)
			return
		}
	}
	r.err = w.writeEnded(ctx, d.Name, text)
	r.gone = r.err == nil
}

// writeEnded writes into the accounting, where slurmctld takes no more of a job. Slurm before 23.02
// makes a line lower-case there: base64 would be lost.
func (w *lineWriter) writeEnded(ctx context.Context, job, text string) error {
	version, err := slurm.FindVersion(ctx, func(ctx context.Context, args ...string) ([]byte, error) { return w.run(ctx, "scontrol", args...) })
	if err != nil {
		return err
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 23 || major == 23 && minor < 2 {
		return nil // the line that it had while it ran stays
	}
	if _, err = w.run(ctx, "sacctmgr", "-i", "-Q", "update", "job", "where", "jobid="+job, "set", "AdminComment="+text); err != nil {
		return fmt.Errorf("cannot write the AdminComment of job %s, which has ended: %w", job, err)
	}
	return nil
}

// merge is the line of a job with what is known here. ours is false where what is there is another
// program's, or another rsswardend of this node lives and writes it.
func (w *lineWriter) merge(l *jobLine, d *slurm.JobDetails, now time.Time) (line adminline.Line, ours bool) {
	if d.AdminComment != "" {
		var err error
		line, err = adminline.Decode(d.AdminComment)
		if err != nil || line.Own == nil {
			return line, false
		}
	}
	if line.Own == nil {
		line.Own = &adminline.Own{V: 1}
	}
	if line.Own.Nodes == nil {
		line.Own.Nodes = map[string]adminline.OwnNode{}
	}
	if line.Nodes == nil {
		line.Nodes = map[string]adminline.Node{}
	}
	maps.DeleteFunc(line.Own.Nodes, func(node string, o adminline.OwnNode) bool { // of a time that it ran before
		if o.At >= d.Start.Unix() {
			return false
		}
		delete(line.Nodes, node)
		return true
	})
	line.Seconds, line.GPUs = int64(d.RunTime.Seconds()), d.GPUs
	for node, s := range l.shares {
		was, own := line.Nodes[node], line.Own.Nodes[node]
		if own.By != "" && own.By != w.self && lives(own.By) {
			return line, false
		}
		given := d.Nodes[node]
		is := adminline.Node{Limit: uint64(s.limit), Peak: max(was.Peak, uint64(s.peak))}
		if is.Limit == 0 {
			is.Limit = given.MiB << 20
		}
		if node, err := proctree.ReadMemInfo("/proc"); err == nil && is.Limit == 0 { // reportseff divides by it
			is.Limit = uint64(node.Total)
		}
		if given.CPUs > 0 && s.cpu != nil {
			is.CPUs, is.CPUSeconds = given.CPUs, s.cpu
		}
		line.Nodes[node] = is
		line.Own.Nodes[node] = adminline.OwnNode{
			At: now.Unix(), By: w.self, OOMKills: max(own.OOMKills, s.kills), Cache: max(own.Cache, uint64(s.cache)),
		}
	}
	return line, true
}

// lives says that the process "PID.START" lives on this node.
func lives(by string) bool {
	pid, start, _ := strings.Cut(by, ".")
	p, e1 := strconv.Atoi(pid)
	s, e2 := strconv.ParseUint(start, 10, 64)
	return e1 == nil && e2 == nil && proctree.Lives("/proc", rss.ProcID{PID: p, Start: s})
}

// slurmCommand runs a command of Slurm's.
func slurmCommand(ctx context.Context, name string, args ...string) ([]byte, error) {
	if name == "scontrol" {
		return slurm.Scontrol(ctx, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, firstLine(out))
	}
	return out, nil
}

// adminComment has the lines of jobs written, where that is asked for.
func (d *daemon) adminComment(s *nodejobs.Snapshot) {
	if d.lines != nil {
		d.lines.look(s, d.jobs.CPUTime)
	}
}

// lineDone yields when a line was written, or could not be.
func (d *daemon) lineDone() <-chan lineResult {
	if d.lines == nil {
		return nil
	}
	return d.lines.done
}

func (d *daemon) heardLine(r lineResult) {
	d.complain("the lines of jobs in AdminComment are not written, they are tried again", d.lines.heard(r, time.Now()))
	if r.left && !d.leftLine {
		d.leftLine = true
		d.log.Info("the AdminComment of this job, and of others like it, is left alone: another program or another rsswardend writes it, or what Slurm shows of the job is not clear", "jobid", r.id)
	}
}
