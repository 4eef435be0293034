package cgroup2

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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

// directory matches the name of a job's directory: from 26.05 on its SLUID.
func (e *ended) directory() string {
	if os.Getenv(slurmInGuest) == "26.05" {
		return "s[0-9A-HJKMNP-TV-Z]{13}"
	}
	return "job_" + e.id
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
	e.says(`100 MiB may be used, .*limit from ` + e.directory() + `/memory\.max`)
	e.says(`memory [89]\d % of 100 MiB`)
	// The watcher may be among the killed: the record tells all the same.
	r := &run{t: t, dir: e.dir}
	r.reports("(the job's", "100M")
}

// slurmStopped: a rule ends the command before the kernel does.
func slurmStopped(t *testing.T) {
	e := job(t, paced(program+" run --at 80%:stop --", 20))
	e.want("FAILED", "137:0")
	e.says("verdict: stopped")
}

// slurmStep: in a step each level is named for what it is.
func slurmStep(t *testing.T) {
	e := job(t, "unset RSSTEST_EATER; "+program+" limits; srun "+program+" limits --json\n")
	e.want("COMPLETED", "0:0")
	e.says("Slurm job " + e.id + `\.batch`)
	var asked struct{ Limits []event.Limit }
	// srun may have something to say after it.
	if err := json.NewDecoder(strings.NewReader(e.out[strings.Index(e.out, "{"):])).Decode(&asked); err != nil {
		t.Fatalf("%v\n%s", err, e.out)
	}
	of := map[event.Scope]*event.Limit{}
	for i := range asked.Limits {
		if l := &asked.Limits[i]; l.Name == event.LimitCgroup {
			of[l.Scope] = l
		}
	}
	whole := of[event.ScopeJob]
	if whole == nil || whole.Limit != 100*rss.MiB || !whole.Binding && (of[event.ScopeStep] == nil || !of[event.ScopeStep].Binding) ||
		!regexp.MustCompile("^"+slice+"/n1_slurmstepd.scope/"+e.directory()+"$").MatchString(whole.Level) {
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

// slurmHugePages: where slurmstepd counts anonymous huge pages twice, what it compares is
// what we show.
func slurmHugePages(t *testing.T) {
	shell(t, "echo always >/sys/kernel/mm/transparent_hugepage/enabled")
	killing(t)
	job(t, held(100, 10), "--mem=150M").want("FAILED", "0:9")
	e := job(t, "RSSWARDEN_EVENTS=$PWD/events "+program+" run -- /bin/sh -c '"+held(100, 10)+"'\n", "--mem=400M")
	e.want("COMPLETED", "0:0")
	var stepd, ours rss.Bytes
	b := wardentest.ReadFile(t, filepath.Join(slurmDir, "slurmd.log"))
	for _, m := range regexp.MustCompile(`StepId=`+e.id+`\.batch memory used:(\d+)`).FindAllStringSubmatch(string(b), -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		stepd = max(stepd, rss.Bytes(n))
	}
	r := &run{t: t, dir: e.dir}
	for _, l := range r.events(event.NameSample) {
		var s event.Sample
		r.read(l.text, &s)
		for i := range s.Limits {
			if s.Limits[i].Name == event.LimitSlurm {
				ours = max(ours, s.Limits[i].Used)
			}
		}
	}
	if stepd < 180*rss.MiB || ours < stepd-8*rss.MiB || ours > stepd+8*rss.MiB {
		t.Errorf("100 MiB of huge pages: slurmstepd has %v, we %v", stepd, ours)
	}
}

// held is a command of one line that takes so many MiB and holds them for so many seconds.
func held(mib, seconds int) string {
	return fmt.Sprintf(`(echo "anon %d"; sleep %d) | /guest/program`, mib<<20, seconds)
}

// slurmJobSum: two steps that are each below the job's memory, and above it together.
func slurmJobSum(t *testing.T) {
	killing(t)
	e := job(t, "exec "+program+" run -- /bin/sh -c '"+held(90, 60)+" & "+
		strings.Replace(held(90, 60), "|", "| srun --overlap", 1)+"; wait'\n", "--mem=200M")
	e.want("CANCELLED", "")
	wardentest.Until(t, "verdict", func() bool {
		b, _ := os.ReadFile(e.dir + "/out")
		e.out = string(b)
		return strings.Contains(e.out, "verdict: ")
	})
	e.says("verdict: killed; .*slurmd cancelled the job")
}
