package phrase

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestMemorySaysWhoComparesWhat(t *testing.T) {
	of := func(l event.Limit) *event.Limit {
		l.Used, l.Limit = 91*rss.MiB, 100*rss.MiB
		return &l
	}
	for _, test := range []struct {
		limit event.Limit
		want  string
	}{
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Enforcer: "slurmstepd, by OverMemoryKill", LimitSource: "RLIMIT_RSS"},
			"memory 91 % of 100 MiB (slurmstepd kills on summed RSS; limit from --mem, read from RLIMIT_RSS)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingCgroup, Enforcer: "slurmstepd, by OverMemoryKill"},
			"memory 91 % of 100 MiB (slurmstepd kills on summed memory of the tasks' cgroups)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Enforcer: "slurmstepd"},
			"memory 91 % of 100 MiB (slurmstepd kills on summed PSS)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Enforcer: "slurmstepd", UsedMax: 95 * rss.MiB, Age: 41.7},
			"memory 91 % of 100 MiB (slurmstepd kills on summed PSS, at most 95.0 MiB, read up to 42 s ago)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Enforcer: "slurmstepd", UsedMax: 95 * rss.MiB},
			"memory 91 % of 100 MiB (slurmstepd kills on summed PSS, at most 95.0 MiB)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingNoShared, Enforcer: "slurmstepd"},
			"memory 91 % of 100 MiB (slurmstepd kills on summed RSS less shared pages)"},
		{event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingVirtual, Enforcer: "slurmstepd"},
			"memory 91 % of 100 MiB (slurmstepd kills on summed virtual size)"},
		{event.Limit{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Enforcer: "kernel OOM killer", LimitSource: "/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes"},
			"memory 91 % of 100 MiB (kernel OOM killer kills on unreclaimable memory; limit from job_7/memory.limit_in_bytes)"},
		{event.Limit{Name: event.LimitThrottle, Accounting: event.AccountingCgroup, Enforcer: "kernel, by slowing allocations down"},
			"memory 91 % of 100 MiB (slow, not dead: throttled on the charge, page cache included)"},
		{event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Enforcer: "rsswarden's rules alone", LimitSource: "--limit"},
			"memory 91 % of 100 MiB (our own rules act on summed RSS; limit from --limit)"},
		{event.Limit{Name: event.LimitNode, Enforcer: "kernel OOM killer of the node", LimitSource: "meminfo: MemTotal"},
			"memory 91 % of 100 MiB (kernel OOM killer of the node kills on the node's used memory; limit from meminfo: MemTotal)"},
	} {
		if got := Memory(of(test.limit)); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestOutcomeSentences(t *testing.T) {
	for _, test := range []struct {
		action event.Action
		arg    string
		o      event.Outcome
		want   string
	}{
		{event.ActionRecycle, "", event.Outcome{OK: true, PID: 4711, Freed: 612 * rss.MiB, Paused: 0.007},
			"recycled worker 4711, freed 612 MiB, trainer paused 7 ms"},
		{event.ActionTrim, "", event.Outcome{OK: true, Freed: 2 * rss.GiB}, "workers trimmed, freed 2.00 GiB"},
		{event.ActionStop, "", event.Outcome{OK: true}, "stopped the command, freed 0 B"},
		{event.ActionRecycle, "", event.Outcome{PID: 4711, Reason: event.ReasonTimeout}, "recycle 4711 did not work: no answer in time"},
		{event.ActionTrim, "", event.Outcome{Reason: event.ReasonError, Detail: "no such file"}, "trim did not work: error, no such file"},
		{event.ActionStop, "", event.Outcome{Reason: event.ReasonDryRun}, "would stop (dry run)"},
		{event.ActionSignal, "USR2@rank0", event.Outcome{OK: true, PID: 12, Detail: "process 12"}, "USR2 sent to process 12"},
		{event.ActionSignal, "USR2", event.Outcome{Reason: event.ReasonVanished}, "signal=USR2 did not work: process has ended"},
		{event.ActionSignal, "USR2", event.Outcome{Reason: event.ReasonDryRun}, "would signal=USR2 (dry run)"},
		{event.ActionExec, "a.sh", event.Outcome{Reason: event.ReasonVanished, Detail: "killed by SIGTERM, what is watched had ended"},
			"exec=a.sh did not work: killed by SIGTERM, what is watched had ended"},
		{event.ActionGC, "", event.Outcome{OK: true, Freed: rss.GiB}, "garbage collected, freed 1.00 GiB"},
	} {
		if got := Outcome(&event.Decision{Action: test.action, Arg: test.arg}, &test.o); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestForecastSentences(t *testing.T) {
	eta, low, high := 600.0, 480.0, 9000.0
	for want, d := range map[string]event.Decision{
		"":                              {},
		"; at this rate full in 10 min": {ETA: &eta},
		"; at this rate full in 10 min (8 min to 2.5 h)":                        {ETA: &eta, Outlook: event.Outlook{ETALow: &low, ETAHigh: &high}},
		"; at this rate full in 10 min (at least 8 min; it may flatten before)": {ETA: &eta, Outlook: event.Outlook{ETALow: &low}},
		"; flattens at about 2.50 GiB, below the limit":                         {Limit: event.LimitUser, Outlook: event.Outlook{Flattens: 2560 * rss.MiB}},
	} {
		if got := Forecast(&d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	for source, want := range map[string]string{
		"RLIMIT_RSS": "--mem, read from RLIMIT_RSS", "/a/b": "/a/b", "/sys/fs/cgroup/job_7/memory.max": "job_7/memory.max",
	} {
		if got := (&event.Limit{LimitSource: source}).Place(); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	const file = "/home/me/jobs/job.toml"
	if got := (&event.Limit{Name: event.LimitUser, LimitSource: file}).Place(); got != file {
		t.Errorf("a file of the user's: %q, want %q", got, file)
	}
}

func TestWatchingNamesTheLeastHeadroom(t *testing.T) {
	command := []string{"python", "train.py"}
	limits := []event.Limit{
		{Name: event.LimitNode, Used: 60 * rss.GiB, Limit: 64 * rss.GiB},
		{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Enforcer: "slurmstepd", Used: 30 * rss.MiB, Limit: 3 * rss.GiB},
		{Name: event.LimitThrottle, Used: 1, Limit: 2},
		{Name: event.LimitTime},
	}
	if got, want := Watching(command, 7, limits), "watching python train.py (process 7): 3.00 GiB may be used, 1 % are (slurmstepd kills on summed RSS)"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := Watching(command, 7, limits[3:]); !strings.HasSuffix(got, "nothing here limits its memory") {
		t.Errorf("got %q", got)
	}
}

func TestNoExecIsSaidWhereItIsKnown(t *testing.T) {
	batch := slurm.Job{ID: "7", StepID: slurm.StepBatch}
	for _, test := range []struct {
		job    slurm.Job
		ok     bool
		parent string
		want   bool
	}{
		{batch, true, "slurm_script", true},
		{batch, true, "slurmstepd", false},
		{batch, true, "", false}, // cannot be read
		{batch, false, "bash", false},
		{slurm.Job{ID: "7", StepID: "0"}, true, "bash", false},
	} {
		if got := NoExec(test.job, test.ok, test.parent) != ""; got != test.want {
			t.Errorf("%+v below %q: warned %v, want %v", test.job, test.parent, got, test.want)
		}
	}
}

// TestSide words limits that are none on summed memory.
func TestSide(t *testing.T) {
	for _, c := range []struct {
		l    event.Limit
		want string
	}{
		{event.Limit{Name: event.LimitMaps, Used: 53079, Limit: 65530, PID: 4711, Role: rss.RoleTrainer, Enforcer: "kernel, by ENOMEM of mmap", LimitSource: "vm.max_map_count"},
			"memory mappings 81 % of 65,530, in process 4711 (trainer) (kernel, by ENOMEM of mmap; limit from vm.max_map_count)"},
		{event.Limit{Name: event.LimitFDs, Used: 1024, Limit: 1024, PID: 4711, Role: rss.RoleOther, Enforcer: "kernel, by EMFILE of open", LimitSource: "soft RLIMIT_NOFILE of /proc/PID/limits", Age: 12.4},
			"descriptors 100 % of 1,024, in process 4711 (kernel, by EMFILE of open; limit from soft RLIMIT_NOFILE of /proc/PID/limits; counted 12 s ago)"},
		{event.Limit{Name: event.LimitSHM, Used: 60 * rss.MiB, Limit: 64 * rss.MiB, Enforcer: "kernel, by SIGBUS", LimitSource: "size of that tmpfs", Age: 61},
			"/dev/shm 94 % of 64.0 MiB (kernel, by SIGBUS; limit from size of that tmpfs; read 61 s ago)"},
		{event.Limit{Name: event.LimitTasks, Used: 90, Limit: 100, Enforcer: "kernel, by EAGAIN of fork", LimitSource: "/sys/fs/cgroup/pids/job/step/pids.max", Age: 0.5},
			"tasks 90 % of 100 (kernel, by EAGAIN of fork; limit from step/pids.max)"},
	} {
		if got := Side(&c.l); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
