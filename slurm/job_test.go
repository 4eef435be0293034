package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
)

func TestMain(m *testing.M) {
	if os.Getenv("PRINT_RLIMIT_RSS") != "" {
		fmt.Println(RlimitRSS())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const mib = 1 << 20

// env makes a lookup function of "NAME=value" words.
func env(words string) func(string) (string, bool) {
	return func(name string) (value string, ok bool) {
		for word := range strings.FieldsSeq(words) {
			if v, is := strings.CutPrefix(word, name+"="); is {
				value, ok = v, true
			}
		}
		return value, ok
	}
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFromEnv(t *testing.T) {
	for _, test := range []struct {
		name, env string
		want      Job
	}{
		{"no job", "SLURM_CONF=/x", Job{}},
		{"empty id", "SLURM_JOB_ID=", Job{}},
		{"an option for an id", "SLURM_JOB_ID=-Mevil", Job{}},
		{"a list for an id", "SLURM_JOB_ID=46,47", Job{}},
		{"a path for an id", "SLURM_JOB_ID=../46", Job{}},
		{"options for all but the id", "SLURM_JOB_ID=46 SLURM_STEP_ID=-Mevil SLURM_ARRAY_JOB_ID=-Mevil SLURM_ARRAY_TASK_ID=1", Job{ID: "46"}},
		{
			"batch step of 22.05 has no step id",
			`SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_TASK_PID=99 SLURMD_NODENAME=n1 SLURM_CONF=/etc/s.conf
				SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=2 SLURM_NNODES=1
				SLURM_JOB_USER=ann SLURM_CLUSTER_NAME=lab SLURM_JOB_PARTITION=debug SLURM_JOB_NAME=script`,
			Job{ID: "7", StepID: "batch", NodeName: "n1", ConfFile: "/etc/s.conf", Tasks: 2, Nodes: 1, Cluster: "lab", Partition: "debug", Name: "script"},
		},
		{
			"task of srun",
			`SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2
				SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=6 SLURM_JOB_NUM_NODES=8 SLURM_STEP_NUM_NODES=3`,
			Job{ID: "7", StepID: "3", Task: 5, LocalID: 1, NodeID: 2, Tasks: 6, Nodes: 3},
		},
		{"interactive step by its number", "SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290", Job{ID: "7", StepID: "interactive"}},
		{
			"batch step of 26.05 has a negative step id",
			"SLURM_JOB_ID=5 SLURM_STEP_ID=-5 SLURM_STEPID=-5 SLURM_TASK_PID=1 SLURMD_NODENAME=x SLURM_NTASKS=4 SLURM_NNODES=2",
			Job{ID: "5", StepID: "batch", NodeName: "x", Tasks: 4, Nodes: 2},
		},
		{"extern step of 26.05", "SLURM_JOB_ID=5 SLURM_STEP_ID=-4", Job{ID: "5", StepID: "extern"}},
		{"interactive step of 26.05", "SLURM_JOB_ID=5 SLURM_STEP_ID=-6", Job{ID: "5", StepID: "interactive"}},
		{"a step id that is no number", "SLURM_JOB_ID=5 SLURM_STEP_ID=99999999999999999999", Job{ID: "5", StepID: "99999999999999999999"}},
		{"shell of salloc is in no step", "SLURM_JOB_ID=7 SLURM_NNODES=1", Job{ID: "7", Nodes: 1}},
		{
			"array task, requeued, with an end",
			`SLURM_JOB_ID=9 SLURM_TASK_PID=1 SLURM_ARRAY_JOB_ID=8 SLURM_ARRAY_TASK_ID=12
				SLURM_RESTART_COUNT=2 SLURM_JOB_END_TIME=1790000000`,
			Job{ID: "9", StepID: "batch", ArrayJob: "8", ArrayTask: "12", Restarts: 2, End: time.Unix(1790000000, 0)},
		},
		{"component of a heterogeneous job", "SLURM_JOB_ID=11 SLURM_HET_SIZE=2 SLURMD_NODENAME=n1", Job{ID: "11", StepID: "batch", NodeName: "n1"}},
		{
			"malformed numbers are 0",
			`SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=x SLURM_LOCALID=-1
				SLURM_RESTART_COUNT=99999999999999999999 SLURM_JOB_END_TIME=soon`,
			Job{ID: "7", StepID: "0"},
		},
	} {
		got, ok := FromEnv(env(test.env))
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Job{})); diff != "" || ok != (test.want.ID != "") {
			t.Errorf("%s: found %v: %s", test.name, ok, diff)
		}
	}
}

func TestJobString(t *testing.T) {
	for want, job := range map[string]Job{"7": {ID: "7"}, "7.batch": {ID: "7", StepID: "batch"}} {
		if got := job.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFindEnd(t *testing.T) {
	for text, want := range map[string]error{"2026-11-20T11:30:00": nil, "Unknown": ErrNoEnd, "NONE": ErrNoEnd, "": ErrNoEnd} {
		end, err := FindEnd(t.Context(), Job{ID: "46"}, func(context.Context, ...string) ([]byte, error) {
			return []byte("JobId=46 JobName=a JobState=RUNNING StartTime=2026-11-20T10:00:00 EndTime=" + text + " Deadline=N/A"), nil
		})
		if !errors.Is(err, want) || want == nil && !end.Equal(time.Date(2026, 11, 20, 11, 30, 0, 0, time.Local)) {
			t.Errorf("%q: end %v, %v, want %v", text, end, err, want)
		}
	}
	no := errors.New("no such job")
	if _, err := FindEnd(t.Context(), Job{ID: "47"}, func(context.Context, ...string) ([]byte, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("error %v, want that of scontrol", err)
	}
}

// TestNodeName: runs and the node's daemon say the same name of a node, inside
// Slurm and outside.
func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	must(t, err)
	for name, want := range map[string]string{"n1": "n1", "n1.site": "n1.site", "": short(host)} { // as slurm.conf has it
		if got := NodeName(env("SLURMD_NODENAME=" + name)); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := short("n1.site.org"); got != "n1" {
		t.Errorf("%q", got)
	}
}

func TestStepLimits(t *testing.T) {
	for _, test := range []struct {
		name, env string
		rss       uint64
		want      []Memory
	}{
		{"no job, whatever RLIMIT_RSS is", "SLURM_MEM_PER_NODE=300", 100 * mib, nil},
		{"batch step", "SLURM_JOB_ID=1 SLURM_MEM_PER_NODE=300", 300 * mib,
			[]Memory{{300 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", true}}},
		{"srun with a --mem of its own: the environment is stale", "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_MEM_PER_NODE=300", 100 * mib,
			[]Memory{{100 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", false}}},
		{"batch step of 26.05: its environment is its own", "SLURM_JOB_ID=1 SLURM_STEP_ID=-5 SLURM_MEM_PER_NODE=300", 300 * mib,
			[]Memory{{300 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", true}}},
		{"--mem=0: the node's memory", "SLURM_JOB_ID=1", 8000 * mib, []Memory{{8000 * mib, "RLIMIT_RSS", true}}},
		{"per CPU", "SLURM_JOB_ID=1 SLURM_MEM_PER_CPU=120 SLURM_CPUS_ON_NODE=2", NoLimit,
			[]Memory{{240 * mib, "SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE", true}}},
		{"per CPU, by the node's place in the job", "SLURM_JOB_ID=1 SLURM_MEM_PER_CPU=100 SLURM_JOB_CPUS_PER_NODE=4(x2),2 SLURM_NODEID=2", NoLimit,
			[]Memory{{200 * mib, "SLURM_MEM_PER_CPU times SLURM_JOB_CPUS_PER_NODE", true}}},
		{"per GPU", "SLURM_JOB_ID=1 SLURM_MEM_PER_GPU=1000 SLURM_JOB_GPUS=0,2,3", NoLimit,
			[]Memory{{3000 * mib, "SLURM_MEM_PER_GPU times SLURM_JOB_GPUS", true}}},
		{"nothing known", "SLURM_JOB_ID=1", NoLimit, nil},
		{"junk and overflow say nothing",
			"SLURM_JOB_ID=1 SLURM_MEM_PER_NODE=0 SLURM_MEM_PER_CPU=9000000000000 SLURM_CPUS_ON_NODE=4000000000 SLURM_MEM_PER_GPU=1G", 0, nil},
	} {
		if diff := cmp.Diff(test.want, StepLimits(env(test.env), test.rss)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		first, ok := StepLimit(env(test.env), test.rss)
		if ok != (len(test.want) > 0) || ok && first != test.want[0] {
			t.Errorf("%s: StepLimit says %+v, %v", test.name, first, ok)
		}
	}
}

func TestRlimitRSS(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `ulimit -m 12345 && exec "$0" -test.run='^$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "PRINT_RLIMIT_RSS=1")
	out, err := cmd.Output()
	if err != nil || string(out) != fmt.Sprintln(12345<<10) {
		t.Errorf("under ulimit -m 12345: %q, %v", out, err)
	}
}

func TestPerNode(t *testing.T) {
	for _, test := range []struct {
		list string
		node int
		want int
	}{
		{"4", 0, 4}, {"4", 1, 0}, {"4(x2),2", 1, 4}, {"4(x2),2", 2, 2}, {"4(x2),2", 3, 0},
		{"1,2,3", 1, 2}, {"", 0, 0}, {"4(x", 0, 0}, {"4(x2", 0, 0}, {"4(x0)", 0, 0}, {"-1", 0, 0}, {"4", -1, 0}, {",4", 1, 0},
	} {
		if got := perNode(test.list, test.node); got != test.want {
			t.Errorf("node %d of %q: %d, want %d", test.node, test.list, got, test.want)
		}
	}
}

func FuzzPerNode(f *testing.F) {
	f.Add("4(x2),2", 2)
	f.Add("4(x99999999999),2", 1)
	f.Fuzz(func(t *testing.T, list string, node int) {
		if got := perNode(list, node); got < 0 {
			t.Errorf("node %d of %q: %d", node, list, got)
		}
	})
}

// shown is what `scontrol show job 46` of Slurm 22.05 prints, with this comment.
func shown(comment string) string {
	text := "JobId=46 JobName=train\n   UserId=me(1000) GroupId=me(1000) MCS_label=N/A\n   JobState=RUNNING Reason=None Dependency=(null)\n" +
		"   Command=/home/me/run.sh\n   WorkDir=/home/me\n"
	if comment != "" {
		text += "   Comment=" + comment + " \n"
	}
	return text + "   StdErr=/home/me/slurm-46.out\n   Power=\n   \n\n"
}

// TestSetComment: ours follows what the user has, in the place of what we wrote
// before.
func TestSetComment(t *testing.T) {
	for name, test := range map[string]struct{ was, text, want string }{
		"none":              {"", "memory 82 %", "rsswarden: memory 82 %"},
		"ours":              {"rsswarden: memory 82 %", "ended", "rsswarden: ended"},
		"theirs":            {"for paper 3", "memory 82 %", "for paper 3; rsswarden: memory 82 %"},
		"both":              {"for paper 3; rsswarden: memory 82 %", "ended", "for paper 3; rsswarden: ended"},
		"of ours in theirs": {"I love rsswarden: it works", "ended", "I love rsswarden: it works; rsswarden: ended"},
		"with signs":        {"a=b c;d", "x", "a=b c;d; rsswarden: x"},
		"quotes in ours":    {"", "a\"b'c\nd", "rsswarden: a b c d"},
		"ours is long":      {"", strings.Repeat("é", 300), "rsswarden: " + strings.Repeat("é", 98) + "..."},
		"the same":          {"rsswarden: ended", "ended", ""},
	} {
		var calls []string
		must(t, SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			calls = append(calls, strings.Join(args, "|"))
			return []byte(shown(test.was)), nil
		}, "46", test.text))
		want := []string{"show|job|46", "update|JobId=46|Comment=" + test.want}
		if test.want == "" {
			want = want[:1]
		}
		if !slices.Equal(calls, want) {
			t.Errorf("%s: %q, want %q", name, calls, want)
		}
	}
}

// TestSetCommentLeaves: what cannot be kept is left alone, and so is what Slurm
// refuses.
func TestSetCommentLeaves(t *testing.T) {
	refused := errors.New("Access/permission denied")
	for name, test := range map[string]struct {
		out       string
		err, want error
	}{
		"a long one":       {shown(strings.Repeat("x", maxTheirs+1)), nil, errCommentLong},
		"several lines":    {shown("one\ntwo"), nil, errCommentLines},
		"lines like names": {shown("one\n   \ttwo=3"), nil, errCommentLines},
		"a whole array":    {shown("") + shown("x"), nil, errComment},
		"another job":      {strings.Replace(shown(""), "JobId=46", "JobId=47", 1), nil, errComment},
		"nothing":          {"", nil, errComment},
		"no answer":        {"", refused, refused},
	} {
		err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			if args[0] != "show" {
				t.Errorf("%s: %q", name, args)
			}
			return []byte(test.out), test.err
		}, "46", "ended")
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	task := strings.Replace(shown("mine"), "JobId=46 ", "JobId=46 ArrayJobId=44 ArrayTaskId=2 ", 1)
	if got, err := parseComment([]byte(task), "44_2"); err != nil || got != "mine" {
		t.Errorf("an array task: %q, %v", got, err)
	}
	if err := SetComment(t.Context(), nil, "46; rm", "x"); err == nil {
		t.Error("not a job id")
	}
	err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
		if args[0] == "update" {
			return nil, refused
		}
		return []byte(shown("")), nil
	}, "46", "x")
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

// said is what sacct and scontrol printed of real jobs, by names.
func said(t testing.TB) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/ended.txtar")
	must(t, err)
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	return texts
}

// TestParseEnded reads what was said of real jobs. Of a name that looks like fields, "x
// JobState=COMPLETED UserId=1", nothing is believed.
func TestParseEnded(t *testing.T) {
	texts := said(t)
	texts["requeued, the last time it ran"] = texts["sacctOOM"] + strings.ReplaceAll(texts["sacctCompleted"], "1|1|", "5|5|")
	texts["a name with a bar"] = strings.ReplaceAll(texts["sacctNeverRan"], "train.sh", "a|b")
	var b strings.Builder
	for _, c := range []struct{ text, job string }{
		{"sacctCompleted", "1"}, {"sacctNeverRan", "3"}, {"sacctTimeout", "4"}, {"sacctOOM", "5"}, {"sacctSteps", "6"}, {"sacctArray", "7"},
		{"sacctArray", "7_0"}, {"sacctOverMemory", "10"}, {"sacctCancelled", "11"}, {"requeued, the last time it ran", "5"}, {"a name with a bar", "3"},
		{"sacctArray", "9999"}, {"showFailed", "2"}, {"showOOM", "4"}, {"showArray", "8"}, {"showArray", "6_0"}, {"showTimeout", "9"}, {"showOOM", "5"},
	} {
		parse := parseSacct
		if strings.HasPrefix(c.text, "show") {
			parse = parseShowJob
		}
		got, err := parse([]byte(texts[c.text]), c.job, time.UTC)
		is, _ := json.MarshalIndent(got, "", "  ")
		fmt.Fprintf(&b, "# %s, job %s: ID %q, %v\n%s\n", c.text, c.job, got.ID, err, is)
	}
	golden.Check(t, "testdata/ended.golden", b.String())
	for _, parse := range []func([]byte, string, *time.Location) (EndedJob, error){parseSacct, parseShowJob} {
		if _, err := parse(make([]byte, maxSaid+1), "1", time.UTC); err == nil || errors.Is(err, ErrNoJob) {
			t.Errorf("an answer without end was read: %v", err)
		}
	}
}

func TestEnded(t *testing.T) {
	texts, disabled := said(t), errors.New("Slurm accounting storage is disabled")
	for _, test := range []struct {
		name, job   string
		sacct, show string // empty for an error
		source      string
	}{
		{"sacct knows", "5", "sacctOOM", "", "sacct"},
		{"no accounting", "4", "", "showOOM", "scontrol show job"},
		{"not in the accounting", "4", "sacctCompleted", "showOOM", "scontrol show job"},
		{"by its SLUID", "s46HM84SHMGW00", "sacctOOM", "", "sacct"},
		{"by its SLUID, no accounting", "s46HM84SHMGW00", "", "showOOM", "scontrol show job"},
		{"unknown", "4", "", "", ""},
		{"an option", "--all", "sacctOOM", "showOOM", ""},
		{"a list", "4,5", "sacctOOM", "showOOM", ""},
	} {
		j, err := Ended(t.Context(), func(_ context.Context, name string, _ ...string) ([]byte, error) {
			out := texts[map[string]string{"sacct": test.sacct, "scontrol": test.show}[name]]
			if out == "" {
				return nil, disabled
			}
			return []byte(out), nil
		}, test.job)
		if j.Source != test.source || (err == nil) != (test.source != "") {
			t.Errorf("%s: %+v, %v", test.name, j, err)
		}
	}
}

func FuzzParseEnded(f *testing.F) {
	texts := said(f)
	texts["bar"], texts["no name"] = "1|1||||||||||||a|b", "JobId=1 JobName= UserId= JobState=X"
	for _, text := range texts {
		f.Add([]byte(text), "6")
	}
	f.Fuzz(func(t *testing.T, b []byte, job string) {
		for _, parse := range []func([]byte, string, *time.Location) (EndedJob, error){parseSacct, parseShowJob} {
			j, err := parse(b, job, time.UTC)
			if err == nil && (j.ID == "" || j.State == "" || strings.ContainsAny(j.State, " \n")) {
				t.Errorf("%q: no job in %+v", b, j)
			}
			if err != nil && !cmp.Equal(j, EndedJob{}) {
				t.Errorf("%q: %+v beside %v", b, j, err)
			}
		}
	})
}
