package cgroup2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// paced is a script in which an eater takes 10 MiB after another, so many times,
// started by a command. It begins where rsswarden says that it watches, if that is
// asked for, and goes slowly where rungs are: what is to be told of comes in time
// on a busy machine too.
func paced(command string, times int) string {
	begin := ":"
	if command != "" {
		begin = `until grep -q "may be used" out; do sleep 0.1; done`
	}
	return fmt.Sprintf(`(%s; i=0; while [ $i -lt %d ]; do echo "anon %d"; sleep 0.1; [ $i -lt 4 ] || sleep 0.4; i=$((i+1)); done) | %s /guest/program`+"\n",
		begin, times, 10*rss.MiB, command)
}

// slurmBare: what is killed without us is killed by the limit of --mem.
func slurmBare(t *testing.T) {
	job(t, paced("", 20)).want("OUT_OF_MEMORY", "")
	job(t, paced("", 5)).want("COMPLETED", "0:0")
}

// slurmKilled: rungs are told of before the kernel kills, Slurm's word for the
// end is as it is bare, and the report names the job's limit.
func slurmKilled(t *testing.T) {
	e := job(t, paced(program+" run --", 20))
	e.want("OUT_OF_MEMORY", "")
	e.says(`100 MiB may be used, .*limit from job_` + e.id + `/memory\.max`)
	e.says(`memory [89]\d % of 100 MiB`)
	// The watcher may be among the killed: the record tells all the same.
	r := &run{t: t, dir: e.dir}
	r.reports("job_"+e.id, "100M")
}

// slurmStopped: a rule ends the command before the kernel does.
func slurmStopped(t *testing.T) {
	e := job(t, paced(program+" run --at 80%:stop --", 20))
	e.want("FAILED", "137:0")
	e.says("verdict: stopped")
}

// slurmStep: in a step each level is named for what it is.
func slurmStep(t *testing.T) {
	e := job(t, "unset RSSTEST_EATER; srun "+program+" limits --json\n")
	e.want("COMPLETED", "0:0")
	var asked struct{ Limits []event.Limit }
	unmarshalled(t, []byte(e.out[strings.Index(e.out, "{"):]), &asked)
	of := map[event.Scope]*event.Limit{}
	for i := range asked.Limits {
		if l := &asked.Limits[i]; l.Name == event.LimitCgroup {
			of[l.Scope] = l
		}
	}
	whole := of[event.ScopeJob]
	if whole == nil || whole.Limit != 100*rss.MiB || !whole.Binding && (of[event.ScopeStep] == nil || !of[event.ScopeStep].Binding) ||
		whole.Level != slice+"/n1_slurmstepd.scope/job_"+e.id {
		t.Errorf("%+v", asked.Limits)
	}
	if step := of[event.ScopeStep]; step != nil && !strings.HasPrefix(step.Level, whole.Level+"/step_0") {
		t.Errorf("%+v", step)
	}
	for _, l := range asked.Limits {
		if l.Name == event.LimitSlurm {
			t.Errorf("nobody but the kernel kills here: %+v", l)
		}
	}
}
