package trust

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// promise is what happens when a part of ours fails. A cell that no test shows says
// nothing.
type promise struct {
	what, job, record, alerts string
	// tests make the part fail; the first is the one that the README names.
	tests []string
}

const (
	asBare  = "as bare"
	whole   = "whole"
	goOn    = "go on"
	nothing = "—"
)

// ours are the cases of the test that runs the program and has a part of it fail.
func ours(cases ...string) []string {
	for i, c := range cases {
		cases[i] = "cmd/rsswarden.TestPartOfOursFails/" + c
	}
	return cases
}

var promises = []promise{
	{"the watcher is killed, is out of memory, panics, or a fault in C ends it", asBare, "whole, but for what no watcher saw", "go on, perhaps told twice",
		append(ours("watcher killed", "watcher OOM-killed", "watcher panics", "watcher gets SIGBUS", "record cut off"),
			"cmd/rsswarden.TestGoroutinePanics", "cmd/rsswarden.TestGoroutinePanicsOnce", "cmd/rsswarden.TestCommandSurvivesItsWatcher", "cmd/rsswarden.TestTrainingSurvivesItsWatcher", "cmd/rsswarden.TestSlurmJobSurvivesItsWatcher", "supervisor/record.TestKilledAtAnyMoment")},
	{"… four times", asBare, "up to then", "end",
		append(ours("watcher killed often"), "cmd/rsswarden.TestGoroutinePanicsAlways", "supervisor/hold.TestWatcherRestarts")},
	{"memory runs out in the cgroup", "as bare beside a process of 12 MB", "whole, but for what no watcher saw", nothing,
		[]string{"cmd/rsswarden/hunt.TestOOMTakesTheWatcher", "cmd/rsswarden/hunt.TestOOMScore", "cmd/rsswarden/hunt.TestHolderGivesBack"}},
	{"the watcher is stopped or hangs", asBare, "without what came meanwhile", "none meanwhile",
		append(ours("watcher stopped"), "supervisor/hold.TestWatcherFails", "supervisor/hold.TestMuteWatcher")},
	{"the holder panics, or what runs before and after it", asBare, whole, goOn,
		append(ours("holder panics"), "cmd/rsswarden.TestHolderPanics")},
	{"the holder is killed, or a fault in C ends it", "runs on; who started us sees the kill", "up to then; says unwatched", "are resolved",
		[]string{"cmd/rsswarden.TestHolderOfRunKilled", "cmd/rsswarden.TestHolderFaults", "supervisor/hold.TestHolderKilled"}},
	{"the holder is stopped", "goes on, and so does the holder", nothing, nothing,
		[]string{"supervisor/hold.TestUnstick", "supervisor.TestHolderIsLookedAfter"}},
	{"an attach is killed, stopped, or panics", "knows nothing", nothing, nothing,
		[]string{"cmd/rsswarden.TestAttachDies", "cmd/rsswarden.TestAttachPanics"}},
	{"the kernel kills all of the cgroup", "dies, as bare", "whole up to then", nothing,
		[]string{"cmd/rsswarden.TestDeathByGroup"}},
	{"no room for two processes at the start", "executed in our place", "none", "none",
		[]string{"supervisor/hold.TestNoRoom", "supervisor/hold.TestNoRoomForTwo", "supervisor/hold.TestNoRoomForTheUser", "cmd/rsswarden.TestNoRoomKnowsTheOptions"}},
	{"pids.max is reached later", "as bare; up to 28 tasks are ours", whole, "none, says so",
		append(ours("no tasks"), "supervisor/hold.TestPidsMax", "cmd/rsswarden/hunt.TestOwnTasks")},
	{"the watcher has no descriptors left", asBare, "holds the last reading, says so", "none",
		append(ours("no descriptors"), "rss/proctree.TestNoDescriptorLeft", "rss/proctree.TestNoDescriptorForAMember", "rss/proctree.TestNoDescriptorForOthers", "rss/cgroup.TestNoDescriptorLeft", "rss/cgroup.TestNoDescriptorOnTheWay")},
	{"the watcher has no address space left", asBare, "up to then", nothing,
		ours("no address space")},
	{"it starts with little (ulimit -v 2000000)", asBare, whole, goOn,
		ours("little address space")},
	{"the kernel has no system call newer than Linux 4.18", asBare, whole, goOn,
		append(ours("kernel of 4.18"), "supervisor.TestEndingWithoutPidfd")},
	{"ptrace(2) is an old kernel's, is refused, or fails half-way", "goes on, untouched by a trim", nothing, nothing,
		[]string{"cmd/rsswarden.TestTrimKernels", "supervisor/trim.TestTracerKilled"}},
	{"signals interrupt watcher and holder all the time", asBare, whole, goOn,
		ours("interrupted", "holder interrupted")},
	{"a signal that the watcher sends is refused (EPERM)", asBare, "whole, says so once", goOn,
		ours("stop not allowed", "signal not allowed")},
	{"the hook raises, is slow, or finds garbage", "its data and end as bare", nothing, nothing,
		[]string{"supervisor/loader.TestHookFails", "supervisor/loader.TestGarbage", "supervisor/loader.TestUnknownTorch", "supervisor/loader.TestHookRefused", "cmd/rsswarden.TestBrokenHookNextRung"}},
	{"the record's disk is full or fails, its files are gone", asBare, "whole in the journal", goOn,
		append(ours("record disk full", "record disk fails", "record gone", "record cut off"), "cmd/rsswarden.TestTruncatedRecord", "supervisor/record.TestFullDisk")},
	{"--record names no place for one: no directory, or not writable", asBare, "whole in the journal", goOn,
		ours("record nowhere")},
	{"the record's disk hangs", "as bare, its end 2 s late at most", "whole in the journal", goOn,
		append(ours("record disk hangs"), "cmd/rsswarden.TestFrozenRecord", "cmd/rsswarden.TestHungRecordPlace", "supervisor/record.TestHungDisk")},
	{"the journal cannot be written", asBare, "whole, says so", goOn,
		ours("state read-only")},
	{"record and journal cannot be written", nothing, "none, says so", nothing,
		[]string{"supervisor/record.TestReadOnlyAndVanished", "supervisor/record.TestNoRoom"}},
	{"stderr or --events is full, closed, or read by nobody", asBare, whole, goOn,
		append(ours("stderr full", "stderr closed", "stderr not read", "events not read"), "supervisor/event.TestStreamThatCannotWriteSaysSoOnce")},
	{"/proc is unmounted", asBare, "whole, of whom it knew", goOn,
		append(ours("proc gone"), "supervisor.TestUnreadableTreeKeepsTheLast")},
	{"a file in /proc is denied, gone, cut short, endless or nonsense", nothing, "counts what is missing", nothing,
		[]string{"supervisor/limit.TestEachFileFails", "rss/proctree.TestMalformedIsCounted", "rss/proctree.TestDenied", "rss/proctree.TestVanishAtAnyPoint"}},
	{"a process becomes another user's and cannot be read any more", asBare, "counts it, no --mem is told", nothing,
		[]string{"cmd/rsswarden.TestAnotherUserInTheTree"}},
	{"a file in /proc hangs (mmap_lock)", nothing, "the last value, with its age", nothing,
		[]string{"supervisor.TestPSSReaderNeverBlocksTheLoop", "supervisor.TestCloseReadingHangs", "supervisor.TestCountsNeverBlockTheLoop", "supervisor/limit.TestAgeOfPSS"}},
	{"a cgroup's files cannot be read", asBare, "whole, by the last limit; says so", goOn,
		append(ours("cgroup unmounted"), "supervisor/limit.TestLimitShrinks", "supervisor/limit.TestEachFileFails", "supervisor/limit.TestStepEnds")},
	{"the runtime directory is removed", asBare, whole, goOn,
		append(ours("runtime dir gone"), "supervisor/loader.TestRunDirGone", "supervisor.TestSocketComesBack")},
	{"a directory of ours hangs from the start (NFS, FUSE): --events, …", asBare, nothing, goOn,
		[]string{"cmd/rsswarden.TestHungMount"}},
	{"the program that carries alerts is gone or hangs", asBare, whole, "none, says so",
		append(ours("alert program gone", "alert program hangs"), "supervisor/alert.TestProgram", "supervisor/alert.TestProgramIsKilled")},
	{"a receiver of alerts is away, refuses or hangs", asBare, nothing, "come when it is back",
		[]string{"cmd/rsswarden.TestAlertsDelayNothing", "cmd/rsswarden.TestAlertmanager"}},
	{"the textfile's directory is gone, full or hangs", asBare, whole, goOn,
		append(ours("textfile gone"), "cmd/rsswarden.TestTextfileTrouble", "supervisor/textfile.TestHung")},
	{"an exec= program fails or hangs", asBare, "whole, says so", goOn,
		append(ours("exec fails", "exec hangs"), "supervisor.TestExecHoldsNothingUp", "supervisor.TestExecThatFails", "supervisor/action.TestProgramThatRunsTooLong")},
	{"scontrol hangs", asBare, whole, goOn,
		append(ours("scontrol hangs"), "slurm.TestRequeueCallsEnd")},
	{"the wall clock is set", asBare, "keeps its own time", nothing,
		[]string{"cmd/rsswarden/cgroup2.TestCgroup2/ClockSet", "supervisor.TestRunTime", "supervisor.TestClock"}},
	{"who leads for several ranks is killed", "as without that", "the next one's goes on", "go on, with the same labels",
		[]string{"cmd/rsswarden.TestTwoNodesFourRanks", "supervisor/leader.TestLeadOfTheKilled", "supervisor.TestHeirIsRecorded", "supervisor.TestAlertsOfTheNextLeader"}},
	{"rsswardend, the node's daemon, is killed", asBare, whole, goOn,
		ours("daemon killed")},
}

// text is the table as the documentation of package supervisor has it.
func text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT FAILS\tTHE JOB\tTHE RECORD\tALERTS")
	for _, p := range promises {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.what, p.job, p.record, p.alerts)
	}
	w.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	var out strings.Builder
	for i, line := range lines {
		out.WriteString("//\t" + strings.TrimRight(line, " ") + "\n")
		if i > 0 {
			out.WriteString("//\t  " + strings.Join(shortened(promises[i-1].tests), ", ") + "\n")
		}
	}
	return out.String()
}

// shortened leaves out what a name has in common with the one before it.
func shortened(tests []string) []string {
	short := make([]string, len(tests))
	last, lastTest := "", ""
	for i, name := range tests {
		dir, test, _ := strings.Cut(name, ".")
		fun, sub, isSub := strings.Cut(test, "/")
		switch {
		case isSub && dir+"."+fun == lastTest:
			short[i] = "/" + sub
		case dir == last:
			short[i] = test
		default:
			short[i] = name
		}
		last, lastTest = dir, dir+"."+fun
	}
	return short
}

// markdown is the table as the README has it.
func markdown() string {
	var b strings.Builder
	b.WriteString("| what fails | the job | the record | alerts | shown by |\n|---|---|---|---|---|\n")
	for _, p := range promises {
		_, test, _ := strings.Cut(p.tests[0], ".")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` |\n", p.what, p.job, p.record, p.alerts, test)
	}
	return b.String()
}

// TestPromises: each row has tests, which are there, and both documents show the table.
func TestPromises(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range promises {
		if seen[p.what] || len(p.tests) == 0 || p.job == "" || p.record == "" || p.alerts == "" {
			t.Errorf("%q has a cell that is empty, no test, or is there twice", p.what)
		}
		seen[p.what] = true
		wantTests(t, p.what, p.tests)
	}
	for file, table := range map[string]string{"supervisor/doc.go": text(), "docs/promises.md": markdown()} {
		b, err := os.ReadFile(root + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), table) {
			t.Errorf("%s does not show the table:\n%s", file, table)
		}
	}
}
