package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// steadyJob is a training that does not grow, in a cgroup: a trainer that has built
// its heap, and workers that have nothing of their own when they are forked and reach
// what they need with their third batch, as PyTorch's do.
type steadyJob struct {
	*stand
	trainer rss.ProcID
	heap    rss.Bytes
	needs   rss.Bytes     // of each worker, of its own
	batch   time.Duration // in which each worker makes one
	limit   rss.Bytes
	steady  time.Duration // from when on, if none were replaced

	staff    []int // by worker id
	forked   map[int]time.Duration
	answered uint64
	reported map[int]int // after how many batches a worker reported last
	recycles map[int]int // by worker id
}

// has is what a worker of that age has of its own.
func (j *steadyJob) has(age time.Duration) rss.Bytes {
	return j.needs * rss.Bytes(min(age/j.batch, 3)) / 3
}

// render writes the job's processes and the charge of its cgroup.
func (j *steadyJob) render() {
	used := j.heap
	j.trainerHas(j.trainer, j.heap)
	for _, pid := range j.staff {
		age := j.now() - j.forked[pid]
		own := j.has(age)
		if made := int(age / j.batch); made >= 8 && made >= 2*j.reported[pid] {
			j.reported[pid] = made
			j.log(j.trainer, fmt.Sprintf(`"what":"grown","worker":%d,"count":%d,"before":%d,"after":%d`, pid, made, j.has(age/2), own))
		}
		j.fs.Put(rsstest.Process{PID: pid, Parent: j.trainer.PID, Comm: "python", Anon: j.heap + own})
		used += own
	}
	dir := "sys/fs/cgroup/job/"
	j.fs.Write(dir+"memory.current", fmt.Sprintln(uint64(used)))
	j.fs.Write(dir+"memory.max", fmt.Sprintln(uint64(j.limit)))
	j.fs.Write(dir+"memory.high", "max\n")
	j.fs.Write(dir+"memory.stat", fmt.Sprintf("anon %d\nfile 0\n", used))
}

// obey replaces the workers that the hook is asked to, at once.
func (j *steadyJob) obey() {
	data, err := os.ReadFile(fmt.Sprintf("%s/ctl.%d.%d", j.Settings.Dir, j.trainer.PID, j.trainer.Start))
	if err != nil {
		return // there is none yet
	}
	var c struct {
		Recycle []struct {
			ID     uint64
			Worker int
		}
	}
	wardentest.NoError(j.t, json.Unmarshal(data, &c))
	for _, r := range c.Recycle {
		k := slices.Index(j.staff, r.Worker)
		if r.ID <= j.answered || k < 0 {
			continue
		}
		j.answered = r.ID
		if j.now() >= j.steady {
			j.recycles[k]++
		}
		fresh := slices.Max(j.staff) + 1
		j.fs.End(r.Worker)
		j.staff[k], j.forked[fresh] = fresh, j.now()
		j.log(j.trainer, fmt.Sprintf(`"what":"accepted","id":%d,"n":1,"worker":%d,"mode":"drain"`, r.ID, r.Worker))
		j.log(j.trainer, fmt.Sprintf(`"what":"recycled","id":%d,"n":1,"k":%d,"worker":%d,"new":%d,"pause_ms":30,"mode":"drain","exit":0`, r.ID, k, r.Worker, fresh))
	}
}

// TestSteadyJob: workers that need what they have are not replaced again and again,
// however near the job is to the rung: their replacements need it too. Before that is
// known, one useless recycle of each place is allowed.
func TestSteadyJob(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		needs   rss.Bytes
		batch   time.Duration
	}{
		"8 workers of 24 MiB":               {8, 24 * rss.MiB, 800 * time.Millisecond},
		"4 workers of 60 MiB, slow batches": {4, 60 * rss.MiB, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			j := &steadyJob{heap: 2600 * rss.MiB, needs: c.needs, batch: c.batch, forked: map[int]time.Duration{}, recycles: map[int]int{}, reported: map[int]int{}}
			j.limit = (j.heap + rss.Bytes(c.workers)*c.needs).Scale(1 / 0.93)
			j.stand = newStand(t, withLoader(t), func(o *Options) { o.Settings.Limit = 0 })
			j.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
			j.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "0::/job\n")
			for k := range c.workers {
				j.staff = append(j.staff, worker1+k)
			}
			heap := j.heap
			j.trainer = j.stand.trainer(heap/10, j.staff...)
			j.forkAt(time.Hour) // not yet
			j.heap = heap / 10
			j.renderTrainer()
			j.open(j.holder.begin)
			const step = 250 * time.Millisecond
			for j.heap = heap / 10; j.heap < heap; j.heap += heap / 50 {
				j.renderTrainer() // it fills its heap within seconds
				j.later(step)
				j.full()
			}
			j.heap = heap
			j.forkAt(j.now())
			j.steady = j.now() + 3*j.batch
			for end := j.steady + 2*time.Minute; j.now() < end; j.later(step) {
				j.render()
				j.full()
				j.obey()
			}
			total := 0
			for k := range j.staff {
				total += j.recycles[k]
				if j.recycles[k] > 1 {
					t.Errorf("worker %d was replaced %d times in 2 minutes, want once at most", k, j.recycles[k])
				}
			}
			t.Logf("%d recycles", total)
		})
	}
}

// forkAt has all workers forked at that time.
func (j *steadyJob) forkAt(at time.Duration) {
	for _, pid := range j.staff {
		j.forked[pid] = at
	}
}

// renderTrainer is render before there are workers.
func (j *steadyJob) renderTrainer() {
	staff := j.staff
	j.staff = nil
	j.render()
	j.staff = staff
}
