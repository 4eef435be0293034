package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// holdUntil holds as many MiB as its first argument says until there is a file of the name
// of its second.
const holdUntil = `import os, sys, time; held = bytearray(int(sys.argv[1]) << 20)
while not os.path.exists(sys.argv[2]): time.sleep(0.05)`

// commented is a job of [TestSlurmCommentAndTextfile].
type commented struct {
	*slurmtest.JobRun
	t     *testing.T
	c     *slurmtest.Cluster
	shown string // by which scontrol and squeue know it
	own   string // what the user wrote into its comment
}

// comment is what stands there, as both print it.
func (j *commented) comment() string {
	j.t.Helper()
	out := j.c.Do(j.t, "scontrol", "show", "job", j.shown)
	if out.Code != 0 {
		j.t.Fatal(out)
	}
	comment := ""
	for line := range strings.Lines(out.Stdout) {
		if text, ok := strings.CutPrefix(line, "   Comment="); ok {
			comment = strings.TrimSpace(text)
		}
	}
	return comment
}

// release makes a file that ranks wait for.
func (j *commented) release(file string) {
	j.t.Helper()
	if out := j.c.Do(j.t, "touch", filepath.Join(j.Dir, file)); out.Code != 0 {
		j.t.Fatal(out)
	}
}

// TestSlurmCommentAndTextfile: in jobs of a real Slurm that are near their limit the
// job's comment says so, behind the user's own, and how the job ended; of an array the
// task that it is about has it, and no other; one that is too long stays as it is. The
// textfile tells of job, step, node and limit, and is gone when the job has ended.
func TestSlurmCommentAndTextfile(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	texts, err := os.MkdirTemp(c.Dir(), "texts")
	wardentest.NoError(t, err)
	wardentest.NoError(t, os.Chmod(texts, 0o777|os.ModeSticky))
	run := func(mib, file string) string {
		return fmt.Sprintf("%s run --alert-comment --textfile %s --record none --at none --at 80%%:warn -- %s -c '%s' %s %s", warden, texts, python, holdUntil, mib, file)
	}
	submit := func(own, script string, args ...string) *commented {
		if own != "" {
			args = append(args, "--comment="+own)
		}
		j := &commented{t: t, c: c, own: own, JobRun: c.Submit(t, script, append(args, "--mem=200")...)}
		j.shown = j.ID
		return j
	}
	batch := submit("for paper 3", "exec "+run("160", "go"))
	ranks := submit("", "srun -n2 --overlap --mem=0 "+run("85", "go"), "-n2")
	long := submit(strings.Repeat("long ", 120), "exec "+run("160", "go"))
	// Both tasks wait for each other's end: the last has the number of the array.
	array := submit("sweep", `held=10; [ $SLURM_ARRAY_TASK_ID = 4 ] && held=160
exec `+run("$held", "go$SLURM_ARRAY_TASK_ID"), "--array=3,4")
	near, other := *array, *array
	near.shown, other.shown = array.ID+"_4", array.ID+"_3"

	warned := func(own string) *regexp.Regexp {
		return regexp.MustCompile("^" + own + `rsswarden: memory [89][0-9] % of 200 MiB on ` + c.Node() + ` at \d\d:\d\d:\d\d$`)
	}
	ended := func(own string) *regexp.Regexp {
		return regexp.MustCompile("^" + own + `rsswarden: ended, tight; at most [89][0-9] % of 200 MiB on ` + c.Node() + `; next time --mem=\d+M$`)
	}
	for j, want := range map[*commented]*regexp.Regexp{batch: warned("for paper 3; "), ranks: warned(""), &near: warned("sweep; ")} {
		got := ""
		wardentest.Until(t, fmt.Sprintf("in the comment of %s: %v", j.shown, want), func() bool {
			got = j.comment()
			return want.MatchString(got)
		})
		if out := c.Do(t, "squeue", "-h", "-j", j.shown, "-o", "%k"); strings.TrimSpace(out.Stdout) != got {
			t.Errorf("squeue shows %q, scontrol %q", out.Stdout, got)
		}
	}

	for j, step := range map[*commented]string{batch: "batch", ranks: "0"} {
		var names []string
		wardentest.Until(t, "a textfile of job "+j.ID, func() bool {
			names, _ = filepath.Glob(fmt.Sprintf("%s/rsswarden_%s_%s_%s_*.prom", texts, j.ID, step, c.Node()))
			return len(names) == 1
		})
		job := fmt.Sprintf(`\{jobid="%s",node="%s",run="[0-9a-z]{8}"`, j.ID, c.Node())
		at := fmt.Sprintf(`\{jobid="%s",step="%s",node="%s",run="[0-9a-z]{8}"`, j.ID, step, c.Node())
		n := map[*commented]int{batch: 1, ranks: 2}[j]
		for _, want := range []string{
			`rsswarden_job_limit_ratio` + job + `,limit="cgroup"\} 0\.[89][0-9]*`,
			`rsswarden_job_memory_limit_bytes` + job + `,limit="cgroup"\} 209715200`,
			`rsswarden_oom_kills_total` + at + `\} 0`,
			fmt.Sprintf(`rsswarden_ranks%s\} %d`, at, n),
			`rsswarden_actions_total` + at + `,action="warn",outcome="done"\} [1-9]`,
		} {
			re := regexp.MustCompile("(?m)^" + want + "$")
			// The numbers of the ranks are written again every 15 s.
			wardentest.Until(t, want+" in the textfile of job "+j.ID, func() bool { return re.MatchString(wardentest.Read(names[0])) })
		}
	}
	if got := other.comment(); got != "sweep" {
		t.Errorf("the comment of %s, which is near nothing, is %q", other.shown, got)
	}

	for _, j := range []*commented{batch, ranks, long} {
		j.release("go")
	}
	array.release("go4")
	wardentest.Until(t, "the end of the task", func() bool { return ended("sweep; ").MatchString(near.comment()) })
	if got := other.comment(); got != "sweep" {
		t.Errorf("when %s has ended the comment of %s is %q", near.shown, other.shown, got)
	}
	array.release("go3")
	for _, j := range []*commented{batch, ranks, long} {
		if r := j.Wait(t); r.State != "COMPLETED" {
			t.Errorf("%s\n%s", r.State, r.Stderr)
		}
	}
	wardentest.Until(t, "the end of the other task", func() bool {
		return regexp.MustCompile(`^sweep; rsswarden: ended, ok`).MatchString(other.comment())
	})
	// Who led may have ended before the other.
	eitherEnded := regexp.MustCompile(strings.Replace(ended("").String(), "ended", "(rank [01] )?ended", 1))
	for j, want := range map[*commented]*regexp.Regexp{batch: ended("for paper 3; "), ranks: eitherEnded} {
		if got := j.comment(); !want.MatchString(got) {
			t.Errorf("at the end the comment of %s is %q, want %v", j.ID, got, want)
		}
	}
	if got := long.comment(); got != strings.TrimSpace(long.own) {
		t.Errorf("a long comment has become %q", got)
	}
	if r, err := long.Now(t.Context()); err != nil || !strings.Contains(r.Stderr, "the job's own comment is too long to be kept beside ours") {
		t.Errorf("%v, and it said: %s", err, r.Stderr)
	}
	wardentest.Until(t, "no textfile", func() bool { left, err := os.ReadDir(texts); return err == nil && len(left) <= 1 }) // how many runs have ended stays
}
