package supervisor

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
)

// jobTree is a made-up node with processes of our own user.
type jobTree struct {
	t *testing.T
	rsstest.Tree
}

func (n jobTree) put(pid, parent int, comm, cgroup string, env ...string) {
	n.Put(rsstest.Process{PID: pid, Parent: parent, Start: uint64(pid), Comm: comm, UID: os.Geteuid()})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
	n.Write(fmt.Sprintf("proc/%d/environ", pid), strings.Join(env, "\x00")+"\x00")
}

const v1 = "9:freezer:/slurm/uid_1/job_%[1]s/step_%[2]s\n4:memory:/slurm/uid_1/job_%[1]s/step_%[2]s/task_0\n"

// publisher is a follower of job 46 whose limits are found by way of any
// process of a step; tried gets the PIDs.
func publisher(t *testing.T) (f *JobFollower, n jobTree, tried *[]int) {
	n = jobTree{t, rsstest.Empty(t)}
	tried = new([]int)
	f = &JobFollower{proc: n.Proc, find: population.NewFinder(n.Proc, n.Sys, "46", "", 1)}
	f.part = func(pid int) (*limit.Set, []limit.Warning) {
		*tried = append(*tried, pid)
		return findLimits(&Settings{}, n.Proc, n.Sys, pid, nil, func(string) (string, bool) { return "", false })
	}
	return f, n, tried
}

// TestPublishNotByWhatHasEnded: nothing is found out of a process that ended
// meanwhile, and what is found of a step counts for as long as it lasts.
func TestPublishNotByWhatHasEnded(t *testing.T) {
	f, n, tried := publisher(t)
	n.put(22, 1, "python", fmt.Sprintf(v1, "46", "0"))
	members := []population.Member{{ID: rss.ProcID{PID: 21, Start: 21}, Step: "0", Task: true}, {ID: rss.ProcID{PID: 22, Start: 22}, Step: "0", Task: true}}
	f.publish(members)
	if p := f.now; len(p.parts) != 1 || fmt.Sprint(*tried) != "[21 22]" {
		t.Errorf("%d parts by %v, want one by the process that lives", len(p.parts), *tried)
	}
	f.publish(members[1:])
	if len(*tried) != 2 {
		t.Errorf("looked again: %v", *tried)
	}
	*tried = nil
	f.publish([]population.Member{{ID: rss.ProcID{PID: 31, Start: 31}, Step: "1", Task: true}}) // all have ended
	if p := f.now; len(p.parts) != 1 || p.parts[0].Set == nil {
		t.Errorf("parts %v", p.parts)
	}
}

// TestPublishKeepsNoWarningTwice: a job may have thousands of steps.
func TestPublishKeepsNoWarningTwice(t *testing.T) {
	f, n, _ := publisher(t)
	tried := 0
	f.part = func(int) (*limit.Set, []limit.Warning) {
		set, _ := findLimits(&Settings{}, n.Proc, n.Sys, 21, nil, func(string) (string, bool) { return "", false })
		tried++
		return set, []limit.Warning{{Part: "slurm", Text: "it is so"}, {Part: "slurm", Text: fmt.Sprint("of a step alone ", tried)}}
	}
	n.put(21, 1, "python", fmt.Sprintf(v1, "46", "0"))
	for step := range 20 {
		f.publish([]population.Member{{ID: rss.ProcID{PID: 21, Start: 21}, Step: fmt.Sprint(step), Task: true}})
	}
	if p := f.now; len(p.warns) != 2 || len(f.warns) != 1 {
		t.Errorf("%d warnings of %d steps, want the two of the last", len(p.warns), len(f.warns))
	}
	f.publish([]population.Member{
		{ID: rss.ProcID{PID: 21, Start: 21}, Step: "19", Task: true},
		{ID: rss.ProcID{PID: 21, Start: 21}, Step: "20", Task: true},
	})
	if p := f.now; len(p.warns) != 3 {
		t.Errorf("%d warnings, want each once", len(p.warns))
	}
}

// TestPublishOfTheDead: that a step has ended is no warning.
func TestPublishOfTheDead(t *testing.T) {
	f, _, _ := publisher(t)
	f.publish([]population.Member{{ID: rss.ProcID{PID: 31, Start: 31}, Step: "1", Task: true}})
	if p := f.now; len(p.parts) != 1 || len(p.warns) != 0 {
		t.Errorf("%d parts, warnings %v", len(p.parts), p.warns)
	}
}

// TestPublishSparesExtern: its processes are watched and are no task.
func TestPublishSparesExtern(t *testing.T) {
	for asked, want := range map[string]string{"": "[22@22 21@21]", extern: "[21@21]"} {
		f, _, _ := publisher(t)
		f.step = asked
		members := []population.Member{
			{ID: rss.ProcID{PID: 21, Start: 21}, Step: extern, Task: true},
			{ID: rss.ProcID{PID: 22, Start: 22}, Step: "0", Task: true},
			{ID: rss.ProcID{PID: 23, Start: 23}, Step: "batch", Task: true},
		}
		if asked != "" {
			members = members[:1]
		}
		f.publish(members)
		p := f.Take()
		if asked == "" {
			want = "[22@22 23@23]" // the command first
		}
		if got := fmt.Sprint(p.Tasks); got != want || p.Spared != (asked == "") || p.StepOf[rss.ProcID{PID: 21, Start: 21}] != extern {
			t.Errorf("asked for %q: tasks %s, want %s; spared %v; %v", asked, got, want, p.Spared, p.StepOf)
		}
	}
}

// open counts the limits below a made-up tree that hold a descriptor.
func (n jobTree) open() (open int) {
	n.t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, n.Proc) {
			open++
		}
	}
	return open
}

// TestPublishClosesWhatNobodyTook: a step may come and go between two looks of
// the watcher, and what it looks at is its own to close.
func TestPublishClosesWhatNobodyTook(t *testing.T) {
	f, n, _ := publisher(t)
	n.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1000 kB\nMemAvailable: 1000 kB\n")
	n.put(21, 1, "python", fmt.Sprintf(v1, "46", "0"))
	of := func(steps ...string) (members []population.Member) {
		for _, step := range steps {
			members = append(members, population.Member{ID: rss.ProcID{PID: 21, Start: 21}, Step: step, Task: true})
		}
		return members
	}
	check := func(what string, want int) {
		t.Helper()
		if got := n.open(); got != want {
			t.Errorf("%s: %d are open, want %d", what, got, want)
		}
	}
	f.publish(of("0"))
	u := limit.Join(f.Take().parts...)
	check("one step", 1)
	for i := range 10 {
		f.publish(of("0", fmt.Sprint(i+1)))
	}
	check("ten that nobody took but the first", 2)
	f.publish(of("11", "12"))
	check("the first has ended, and is read", 3)
	u.Read(&rss.Sample{})
	u.Replace(f.Take().parts)
	check("taken", 2)
	f.publish(of("12"))
	f.publish(of("12", "13"))
	check("one of the taken has ended", 3)
	f.publish(of("14"))
	check("both have", 3)
	u.Replace(f.Take().parts)
	check("taken again", 1)
	u.Close()
	check("at the end", 0)
}

// TestPublishWhileItIsRead is for the race detector.
func TestPublishWhileItIsRead(t *testing.T) {
	f, n, _ := publisher(t)
	n.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1000 kB\nMemAvailable: 1000 kB\n")
	n.put(21, 1, "python", fmt.Sprintf(v1, "46", "0"))
	f.publish([]population.Member{{ID: rss.ProcID{PID: 21, Start: 21}, Step: "0", Task: true}})
	u := limit.Join(f.Take().parts...)
	var all sync.WaitGroup
	all.Go(func() {
		for step := range 100 {
			f.publish([]population.Member{
				{ID: rss.ProcID{PID: 21, Start: 21}, Step: fmt.Sprint(step / 3), Task: true},
				{ID: rss.ProcID{PID: 21, Start: 21}, Step: fmt.Sprint(1000 + step/2), Task: true},
			})
		}
	})
	all.Go(func() {
		for range 200 {
			u.Replace(f.Take().parts)
			u.Read(&rss.Sample{})
		}
	})
	all.Wait()
	u.Replace(f.Take().parts)
	u.Close()
	if open := n.open(); open != 0 {
		t.Errorf("%d are open", open)
	}
}
