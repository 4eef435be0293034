package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The live watcher beside a made-up job: its processes as files of a made-up /proc, its
// cgroup, Slurm's environment and configuration, the hook's run directory.

const rateStepd = theHolder - 1

// rateStand is the two of them. It is for one goroutine, in a bubble of synctest.
type rateStand struct {
	*stand
	world   *rateWorld
	trainer rss.ProcID
	written map[int]rsstest.Process
	files   map[string]*rateFile
	wrote   bool                                                  // something, since the last look
	seen    uint64                                                // full looks when ctl was read last
	ctl     []byte                                                // as it was read last
	pssHand *probetest.ByHand[proctree.PSSAsk, observe.PSSAnswer] // nil where PSS is not read
	pssAsk  *proctree.PSSAsk                                      // being answered …
	pssAt   time.Duration                                         // … then
}

// rateFile is a file that is written again and again: kept open, and only where it
// has changed.
type rateFile struct {
	*os.File
	text string
}

// newRateStand makes them.
func newRateStand(t *testing.T, spec *saveratetest.Spec) *rateStand {
	t.Helper()
	r := &rateStand{written: map[int]rsstest.Process{}, files: map[string]*rateFile{}}
	dir, conf := t.TempDir(), filepath.Join(t.TempDir(), "slurm.conf")
	env := map[string]string{
		"SLURM_JOB_ID": "46", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1", "SLURM_CONF": conf, "SLURM_JOB_END_TIME": "9999999999",
	}
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	wardentest.NoError(t, os.WriteFile(conf, []byte(slurmConf(spec)), 0o600))
	r.stand = newStand(t, with(env), func(o *Options) { o.Settings.Limit, o.Settings.Events = 0, "" })
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(t, err)
	r.trainer = rss.ProcID{PID: pid, Start: start}
	r.world = newRateWorld(spec, pid, true)
	r.fs.Write("proc/meminfo", "MemTotal: 1073741824 kB\nMemFree: 1073741824 kB\nMemAvailable: 1073741824 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	r.fs.Write(fmt.Sprintf("proc/%d/limits", theHolder), fmt.Sprintf("Limit                     Soft Limit           Hard Limit           Units     \nMax resident set          %d           %[1]d           bytes     \n", spec.Limit))
	r.fs.Write("proc/self/mountinfo", map[bool]string{
		true:  "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
		false: "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
	}[spec.Accounting == saveratetest.CgroupV2])
	r.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), map[bool]string{true: "0::/slurm/job_46\n", false: "4:memory:/slurm/job_46\n"}[spec.Accounting == saveratetest.CgroupV2])
	r.render()
	if spec.Support != saveratetest.None {
		r.Settings.Dir = dir
		r.file("hello", r.trainer, fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":%d,"torch":"1.13.0","can_recycle":%v}`, pid, start, theCommand, spec.Support == saveratetest.Recycle))
		r.observe.Loader, err = loader.Open(dir)
		wardentest.NoError(t, err)
		r.observe.Loader.Trials = loader.NewTrials(&r.probes, os.Environ, r.Link.Start, true)
	}
	// Told by us: a goroutine that waits for inotify would hold time up.
	r.Settings.Dir, r.observe.Hears = "", true
	r.open(r.holder.begin)
	r.Settings.Dir = dir
	r.alone()
	return r
}

func slurmConf(s *saveratetest.Spec) string {
	gather := "JobAcctGatherType=jobacct_gather/cgroup\nTaskPlugin=task/cgroup\n"
	switch s.Accounting {
	case saveratetest.SlurmRSS:
		gather = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nTaskPlugin=task/none\n"
	case saveratetest.SlurmPSS:
		gather = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill,UsePss\nTaskPlugin=task/none\n"
	}
	return gather + fmt.Sprintf("JobAcctGatherFrequency=task=%d\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n", int(max(s.Poll, time.Second).Seconds()))
}

// alone ends what reads on the side, by goroutines of its own and in its own time:
// maps, descriptors, /dev/shm and diagnoses, on which no action on memory rests. PSS
// is answered by the job.
func (r *rateStand) alone() {
	r.t.Cleanup(func() {
		for name := range r.files {
			r.closeFile(name)
		}
	})
	r.observe.Counts, r.observe.Diagnosis.State, r.slim.done = &counts.Counts{}, nil, true
	if r.observe.PSS != nil {
		r.pssHand = probetest.New[proctree.PSSAsk, observe.PSSAnswer](&r.probes)
		r.observe.PSS = observe.PSSBy(r.pssHand.Reader)
		r.t.Cleanup(func() {
			if r.pssHand.Asked(); r.pssHand.Pending() { // no goroutine may be left
				r.pssHand.Answer(r.t, observe.PSSAnswer{})
			}
		})
	}
}

// render writes what the job has now, and what its hook has said.
func (r *rateStand) render() {
	r.t.Helper()
	w := r.world
	r.process(rsstest.Process{PID: rateStepd, Parent: 1, Start: 1, Comm: "slurmstepd", Anon: 8 * rss.MiB})
	r.process(rsstest.Process{PID: theHolder, Parent: rateStepd, Start: 2, Comm: "rsswarden", Anon: oursAnon / 2, File: oursFile / 2})
	r.process(rsstest.Process{PID: r.Self, Parent: theHolder, Start: 3, Comm: "rsswarden", Anon: oursAnon / 2, File: oursFile / 2})
	r.process(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "bash", Anon: w.Beside})
	r.process(rsstest.Process{PID: r.trainer.PID, Parent: theCommand, Start: r.trainer.Start, Comm: "python", Anon: w.trainer(), File: w.Libs})
	alive := []int{rateStepd, theHolder, r.Self, theCommand, r.trainer.PID}
	for _, o := range w.processes() {
		alive = append(alive, o.pid)
		// The trainer's start is that of this very process: what seems to have started
		// before it, the machine being up for long, would be no child of it.
		r.process(rsstest.Process{PID: o.pid, Parent: r.trainer.PID, Start: r.trainer.Start + uint64(o.pid), Comm: "python", Anon: o.Heap + o.Private, File: o.Libs + o.Mapped})
	}
	for pid := range r.written {
		if !slices.Contains(alive, pid) {
			for _, name := range []string{"stat", "statm", "status"} {
				r.closeFile(fmt.Sprintf("proc/%d/%s", pid, name))
			}
			r.fs.End(pid)
			r.wrote = true
			delete(r.written, pid)
		}
	}
	if w.Accounting.Kernel() {
		r.cgroup()
	}
	if len(w.said) == 0 {
		return
	}
	var b bytes.Buffer
	for _, line := range w.said {
		fmt.Fprintf(&b, "{\"t\":%f,%s\n", float64(time.Now().UnixNano())/1e9, line[1:])
	}
	w.said = nil
	f, err := os.OpenFile(filepath.Join(r.Settings.Dir, fmt.Sprintf("log.%d.%d", r.trainer.PID, r.trainer.Start)), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	wardentest.NoError(r.t, err)
	defer f.Close()
	if _, err := f.Write(b.Bytes()); err != nil {
		r.t.Fatal(err)
	}
}

// process writes a process where it has changed.
func (r *rateStand) process(p rsstest.Process) {
	if r.written[p.PID] == p {
		return
	}
	r.written[p.PID] = p
	for name, text := range p.Files() {
		r.write(fmt.Sprintf("proc/%d/%s", p.PID, name), text)
	}
}

// write writes a file of the tree.
func (r *rateStand) write(name, text string) {
	f := r.files[name]
	if f != nil && f.text == text {
		return
	}
	r.wrote = true
	if f == nil {
		r.fs.Write(name, text)
		file, err := os.OpenFile(r.fs.Path(name), os.O_WRONLY, 0)
		wardentest.NoError(r.t, err)
		r.files[name] = &rateFile{file, text}
		return
	}
	_, err := f.WriteAt([]byte(text), 0)
	if len(text) < len(f.text) {
		err = errors.Join(err, f.Truncate(int64(len(text))))
	}
	wardentest.NoError(r.t, err)
	f.text = text
}

func (r *rateStand) closeFile(name string) {
	if f := r.files[name]; f != nil {
		f.Close()
		delete(r.files, name)
	}
}

// cgroup writes the charge of the job's cgroup: what cannot be reclaimed, and page
// cache for as long as there is room.
func (r *rateStand) cgroup() {
	w := r.world
	m := w.memory()
	used := w.used()
	cache := min(m.Touched()+rss.Bytes(w.step)*w.Cache, w.Limit.Sub(used))
	dir := "sys/fs/cgroup/memory/slurm/job_46/"
	files := map[string]string{
		"memory.usage_in_bytes": fmt.Sprintln(uint64(used + cache)), "memory.limit_in_bytes": fmt.Sprintln(uint64(w.Limit)),
		"memory.oom_control": "oom_kill 0\n",
		"memory.stat":        fmt.Sprintf("total_rss %d\ntotal_cache %d\ntotal_active_file %d\ntotal_inactive_file %d\n", used, cache, cache/2, cache-cache/2),
	}
	if w.Accounting == saveratetest.CgroupV2 {
		dir = "sys/fs/cgroup/slurm/job_46/"
		files = map[string]string{
			"memory.current": fmt.Sprintln(uint64(used + cache)), "memory.max": fmt.Sprintln(uint64(w.Limit)), "memory.high": "max\n",
			"memory.stat": fmt.Sprintf("anon %d\nfile %d\nactive_file %d\ninactive_file %d\n", used, cache, cache/2, cache-cache/2),
		}
	}
	for name, text := range files {
		r.write(dir+name, text)
	}
}

// askedPSS takes the question that is put to the job, if one is.
func (r *rateStand) askedPSS() {
	if r.observe.PSS == nil || r.pssAsk != nil {
		return
	}
	if ask, ok := r.pssHand.Asked(); ok {
		r.pssAsk = &ask
		r.pssAt = r.world.now + pssCost(r.written[ask.ID.PID].Anon+r.written[ask.ID.PID].File)
	}
}

// pssCost is what a reading of smaps_rollup takes: 7 to 21 ms for each GiB.
func pssCost(resident rss.Bytes) time.Duration {
	return 50*time.Microsecond + time.Duration(resident.Of(rss.GiB)*float64(14*time.Millisecond))
}

// answerPSS answers it.
func (r *rateStand) answerPSS() {
	ask := *r.pssAsk
	r.pssAsk = nil
	p := r.written[ask.ID.PID]
	got := observe.PSSAnswer{Ask: ask, Err: os.ErrNotExist}
	if p.PID != 0 {
		cost := pssCost(p.Anon + p.File)
		held := cost
		if ask.Pieces {
			held /= 8 // mmap_lock is given back between two mappings
		}
		anon, file := r.proportional(p.PID)
		got = observe.PSSAnswer{Ask: ask, PSS: rss.PSS{PSS: anon + file, RSS: p.Anon + p.File, Anon: anon, File: file, Mapped: p.File, Split: true, Cost: cost, Held: held}}
	}
	r.pssHand.Answer(r.t, got)
	r.heardProbes()
}

// proportional is the PSS of a process: what is its own and its part of the
// trainer's heap, and its part of the libraries and the data file.
func (r *rateStand) proportional(pid int) (anon, file rss.Bytes) {
	w := r.world
	m := w.memory()
	heap, libs, mapped := float64(m.Trainer), float64(m.Libs), 0.0
	for _, o := range m.Workers {
		heap += float64(o.Heap - min(o.Copied, o.Heap))
		libs += float64(o.Libs)
		mapped += float64(o.Mapped)
	}
	part := func(has rss.Bytes, of rss.Bytes, shares float64) rss.Bytes {
		return rss.Bytes(float64(of) * float64(has) / math.Max(shares, 1))
	}
	if pid == r.trainer.PID {
		return part(m.Trainer, m.Trainer, heap), part(m.Libs, m.Libs, libs)
	}
	for _, o := range w.processes() {
		if o.pid == pid {
			return o.Private + o.Copied + part(o.Heap-min(o.Copied, o.Heap), m.Trainer, heap), part(o.Libs, m.Libs, libs) + part(o.Mapped, m.Touched(), mapped)
		}
	}
	p := r.written[pid]
	return p.Anon, p.File / 2
}

// readCtl has the job read what the watcher wrote.
func (r *rateStand) readCtl() {
	if r.seen == r.view.Sample.Seq {
		return // it is written in full looks only
	}
	r.seen = r.view.Sample.Seq
	data, err := os.ReadFile(filepath.Join(r.Settings.Dir, fmt.Sprintf("ctl.%d.%d", r.trainer.PID, r.trainer.Start)))
	if err != nil || bytes.Equal(data, r.ctl) {
		return // there is none yet
	}
	r.ctl = data
	var c rateCtl
	wardentest.NoError(r.t, json.Unmarshal(data, &c))
	r.world.asked(c)
}
