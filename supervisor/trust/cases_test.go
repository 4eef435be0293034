package trust

import (
	"fmt"
	"slices"
	"testing"
)

// adversity is a case that has broken a program of this kind, or would.
type adversity struct {
	id    string
	what  string
	tests []string // that show what becomes of it here
	why   string   // what of it cannot be had here, and why; or why it is none
}

// cases are grouped by a letter: A accounting, B finding the limit, C signs of
// pressure, D processes, E signals of Slurm, F the supervisor itself.
var cases = []adversity{
	{"A1", "forked loaders share the dataset: the sum of RSS is N times it", []string{
		"rss.TestPSSSum", "rss.TestNoShared", "supervisor/limit.TestWhatSlurmstepdSums", "cmd/rsswarden.TestTrainingThatSharesItsPages"}, ""},
	{"A2", "copy on read turns shared pages private: RSS flat, PSS rises", []string{
		"supervisor/diagnosis.TestGuilty/copy-on-write by PSS alone", "examples/train.TestCopyOnWriteList", "cmd/rsswarden.TestDiagnosis"}, ""},
	{"A3", "page cache fills the cgroup, and nothing is wrong", []string{
		"supervisor/limit.TestPageCacheAtTheLimit", "supervisor/policy.TestNothingFiresOnPageCache", "rss/cgroup.TestRealCgroup"}, ""},
	{"A4", "active and inactive file cache", []string{"rss/cgroup.TestUnreclaimable", "rss/cgroup.TestPagesOnNoList"}, ""},
	{"A5", "tmpfs and /dev/shm are charged and in no RSS, and outlive the worker", []string{
		"rss/cgroup.TestUnreclaimable/tmpfs is in no file list", "rss/cgroup.TestRealCgroup", "rss/shm.TestUsageOfText", "supervisor.TestHolders", "cmd/rsswarden.TestFullShm"}, ""},
	{"A6", "shared memory is left behind by a worker that was killed", []string{
		"supervisor.TestTorchWorkerIsNoPoolWorker", "supervisor/action.TestStopTermsThenKillsTheTree", "rss/shm.TestSegmentsOfText"}, ""},
	{"A7", "SIGBUS: /dev/shm is full, and RSS is not", []string{"cmd/rsswarden.TestFullShm", "supervisor.TestExhausted", "supervisor/report.TestDiagnose"}, ""},
	{"A8", "RSS lags by 64 pages a thread before Linux 6.2", []string{"rss/proctree.TestRealTree/sums agree", "rss/cgroup.TestBehind"}, ""},
	{"A9", "VmHWM and ru_maxrss never fall", []string{"rss/proctree.TestRSSFalls"}, ""},
	{"A10", "a child is born with its parent's RSS", []string{"supervisor.TestFreshWorker", "supervisor.TestCandidatesRememberTheLastRecycle"}, ""},
	{"A11", "memory is held by the allocator and not by the program", []string{
		"supervisor/loader.TestCollect", "supervisor/diagnosis.TestGuilty/fragmentation", "supervisor.TestCollectIsMeasured"}, ""},
	{"A12", "swap is in use: RSS falls while the node thrashes", []string{
		"supervisor/limit.TestSwap", "supervisor/limit.TestPageCacheAtTheLimit"}, "no swap can be switched on here: the numbers are of files"},
	{"A13", "memory of a GPU, and pinned memory, are not charged or in no RSS", []string{
		"supervisor/diagnosis.TestGuilty/pinned, VmPin", "supervisor/trim.TestCheckTree/a GPU and state D"}, "there is no GPU here: what a driver charges nowhere is seen by nobody"},
	{"A14", "a daemon outside the job's cgroup starts the job's containers", []string{
		"rss/proctree.TestOrphansStay", "supervisor.TestFindByCgroup"}, "there is no container daemon here: who is in neither the tree nor the cgroup counts for no limit of the job's, and not here either"},
	{"A15", "hugetlb pages are counted apart", []string{"rss/proctree.TestSumSmaps/two mappings; no hugetlb page is in Rss", "supervisor/trim.TestSmapsPicks"}, ""},
	{"A16", "ZFS's cache can be reclaimed and does not look it", nil,
		"no ZFS here; its cache is charged to no cgroup, and of the node's limit, which is read where no cgroup has one, MemAvailable leaves it out: use is then overstated"},

	{"B1", "the limit stands at an ancestor, the leaf says max", []string{"rss/cgroup.TestLevels", "supervisor/limit.TestWhichLimits", "rss/cgroup.TestRealOOMKill"}, ""},
	{"B2", "use and limit of different cgroups", []string{"rss/cgroup.TestMemoryV1", "rss/cgroup.TestMemoryV2", "supervisor.TestRatesOfLevelsAreApart"}, ""},
	{"B3", "max, 2^63-4096, 0, a file that is not there", []string{"rss/cgroup.TestParseLimit", "rss/cgroup.FuzzParseLimit", "rss/cgroup.TestLimitsChange", "supervisor/limit.TestEachFileFails"}, ""},
	{"B4", "v1, v2, hybrid, a namespaced view, no memory controller", []string{
		"supervisor/limit.TestWhichLimits", "rss/cgroup.TestNoMemoryCgroup", "supervisor/limit.TestHiddenLimit", "supervisor/nodejobs.TestFreezerAlone", "cmd/rsswarden.TestNoSlurm"}, ""},
	{"B5", "a limit above the node's memory", []string{"supervisor/limit.TestNodeBesideCgroup"}, ""},
	{"B6", "the limit changes while the job runs", []string{
		"supervisor/limit.TestLimitShrinks", "supervisor/policy.TestALimitThatShrinks", "supervisor.TestMovedLimitIsTold", "cmd/rsswarden.TestLimitShrinksUnderAJob"}, ""},
	{"B7", "SLURM_MEM_PER_NODE, _CPU and _GPU disagree with the cgroup; tasks share one limit; MB and KB", []string{
		"slurm.TestPerNode", "slurm.TestStepLimits", "supervisor/limit.TestWhichLimits", "supervisor/limit.TestUnionOfSteps", "rss.TestParseBytes"}, ""},
	{"B8", "a step's limit below its job's", []string{"cmd/rsswarden.TestSeveralSteps", "supervisor/limit.TestUnionOfSteps"}, ""},
	{"B9", "the threshold in the message is another than the one that fired", []string{"supervisor/policy.TestDecisionSaysWhy", "supervisor.TestExecIsTold"}, ""},

	{"C1", "pressure stall information is silent until too late, without swap", []string{
		"supervisor/wake.TestNoStallInformation", "supervisor/policy.TestBurstIsMet", "supervisor.TestFastTickCallsForAFullOneAtTheRung"}, ""},
	{"C2", "pressure is high with memory free", []string{"supervisor.TestStallsDecideNothing"}, ""},
	{"C3", "pressure is wrong on some kernels", []string{"supervisor.TestStallsDecideNothing", "supervisor/wake.TestNoStallInformation"}, ""},
	{"C4", "averages stay high after recovery, and the killing goes on", []string{
		"supervisor.TestStallsDecideNothing", "supervisor/policy.TestOneActionAtATime", "supervisor/policy.TestRecoveredBeforeTheAction"}, ""},
	{"C5", "memory.high throttles for ever, and nothing is killed", []string{
		"supervisor/limit.TestWhichLimits/v2 with throttling and an end", "supervisor/policy.TestWarnForEachLimit", "supervisor/policy.TestBinding/a throttle ends nothing"}, ""},
	{"C6", "event counters from before are taken as new", []string{"supervisor/limit.TestOOMKills"}, ""},
	{"C7", "an event comes, and stale data are judged", []string{"supervisor.TestPressedLooks"}, ""},
	{"C8", "what told of events was removed, and a thread dies of it", []string{
		"supervisor/wake.TestWatchEnds", "supervisor.TestWithoutInotifyLoadersAreLookedFor", "supervisor.TestOrdersWithoutNews"}, ""},
	{"C9", "no permission to ask for events", []string{"supervisor/wake.TestNoLeaveToAskForStalls"}, ""},
	{"C10", "a burst is faster than any poll", []string{"supervisor/policy.TestBurstIsMet", "supervisor/policy.TestLead"}, ""},
	{"C11", "looks come late: the CPU is throttled, or the supervisor stalls with the job", []string{
		"supervisor.TestSlowLookIsNoGap", "supervisor.TestNoRateOverAGap", "supervisor/limit.TestDearStatIsReadLess"}, ""},

	{"D1", "the PID is another's between choice and signal, or a thread's", []string{
		"supervisor/action.TestKillSparesWhoeverHasThePIDNow", "supervisor/action.TestKillSparesAThread", "rss/proctree.TestReusedPID", "supervisor.TestGivenOutPID"}, ""},
	{"D2", "the main thread has ended, others live", []string{"rss/proctree.TestZombies", "rss/proctree.TestRealTree/zombie"}, ""},
	{"D3", "a zombie has no memory", []string{"rss/proctree.TestZombies", "supervisor/action.TestReplaceWaitsForTheReplacement"}, ""},
	{"D4", "a process cannot be killed: uninterruptible sleep", []string{
		"supervisor/action.TestStopOfTheUnkillable", "supervisor/trim.TestCheckWaiting", "supervisor/policy.TestLostOutcome"}, ""},
	{"D5", "a fork storm: born and dead between two looks", []string{
		"rss/proctree.TestParentEndsWhileRead", "rss/proctree.TestListsAfterAFork", "supervisor/record.TestForkStorm", "supervisor.TestPeaksOfWhatWasTooShort"}, ""},
	{"D6", "double fork, setsid; an orphan is adopted", []string{
		"rss/proctree.TestOrphansStay", "rss/proctree.TestRealTree/double fork", "supervisor/hold.TestSubreaper", "cmd/rsswarden.TestSlurmOrphan"}, ""},
	{"D7", "names with ), newline, escape sequences, invalid UTF-8", []string{
		"rss/proctree.TestParseStatHostileNames", "rss/proctree.TestHostileNameInTree", "supervisor/text.TestCommand", "supervisor/screen.TestClean",
		"supervisor/report.TestPageTakesHostileNames", "supervisor/metrics.FuzzText", "cmd/rsswarden.TestTrimReport"}, ""},
	{"D8", "exec changes the name; so does prctl", []string{"supervisor.TestMatcherReadsAgainAfterExec", "supervisor.TestRolesAreKept"}, ""},
	{"D9", "hidepid, EPERM, smaps that is ptrace-protected", []string{
		"cmd/rsswarden.TestAnotherUserInTheTree", "rss/proctree.TestDenied", "supervisor/limit.TestSlurmstepdHidden", "supervisor/trim.TestCheckOwner", "supervisor.TestCountsNeverBlockTheLoop"}, ""},
	{"D10", "a process vanishes between open and read", []string{"rss/proctree.TestVanishAtAnyPoint", "rss/proctree.TestRealSmapsEndsEarly", "cmd/rsswarden.TestAttachVanishes", "supervisor/limit.TestEachFileFails"}, ""},
	{"D11", "it selects itself", []string{
		"supervisor.TestAttachedToUs", "supervisor.TestAttachedWithinCountsNotItself", "cmd/rsswarden.TestTrimJob", "cmd/rsswarden.TestPoolOwnerIsSpared"}, ""},
	{"D12", "TERM is ignored", []string{"supervisor/action.TestStopTermsThenKillsTheTree", "supervisor.TestStandByKills", "supervisor/action.TestProgramThatRunsTooLong"}, ""},
	{"D13", "a kill of the group hits the launcher", []string{"cmd/rsswarden.TestRanks", "supervisor.TestWhoStartedRanks", "supervisor.TestStopSparesExtern"}, ""},
	{"D14", "a loader's worker is killed, and the trainer raises", []string{
		"supervisor.TestTorchWorkerIsNoPoolWorker", "supervisor/loader.TestMatrix", "supervisor/loader.TestLeavingWorkerKilled"}, ""},
	{"D15", "a worker that owns a lock, an InfiniBand device, shared memory", []string{
		"supervisor/loader.TestVerbs", "supervisor/trim.TestMutexIsNotLent", "supervisor/loader.TestUndelivered"}, "no NCCL here: a trainer is never signalled but by a rule of the user's"},
	{"D16", "a worker that was replaced is as large again at once", []string{
		"supervisor/policy.TestRecycleGoesOnWhileItHelps", "supervisor/policy.TestPickWorker", "supervisor.TestCandidatesRememberTheLastRecycle"}, ""},
	{"D17", "the threshold is below what the program needs", []string{
		"supervisor/policy.TestTooSmallAGainIsNoHelp", "supervisor/policy.TestNoHelpIsSaidOnceAndTheNextRungTaken", "supervisor.TestAboveTheLimitLooksStayFew",
		"supervisor/policy.TestCollectingInVainThins"}, ""},
	{"D18", "all ranks act at once", []string{"supervisor.TestLeaderWatchesAll", "cmd/rsswarden.TestRanks", "cmd/rsswarden.TestTwoNodesFourRanks", "slurm.TestRequeueOfTwo"},
		"nodes do not ask each other: each acts by its own limit"},
	{"D19", "the reaper takes a child that somebody else waits for", []string{"supervisor/hold.TestSubreaper", "supervisor/hold.TestTrimmedCommandEnds", "supervisor/hold.TestWatcherRestarts"}, ""},
	{"D20", "SIGCHLDs become one", []string{"supervisor/hold.TestSubreaper"}, ""},

	{"E1", "TERM, and KILL after KillWait", []string{"cmd/rsswarden.TestSlurmSignals", "supervisor/report.TestDiagnose/time limit, KillWait over", "cmd/rsswarden.TestDeathsInSlurm", "supervisor.TestSignalsAreTold"}, ""},
	{"E2", "a signal to the whole step arrives by itself and through us", []string{
		"supervisor/hold.TestGroupSignalOnce", "supervisor/hold.TestGroupAndHolderAtOnce", "cmd/rsswarden.TestSlurmSignals"}, ""},
	{"E3", "USR1 is meant for the trainer", []string{"supervisor/hold.TestEverySignalOnce", "supervisor/action.TestCatches", "supervisor.TestReceivers"}, ""},
	{"E4", "suspend and resume: time jumps", []string{
		"supervisor.TestClock", "supervisor.TestDeadlinesWaitWhileStopped", "supervisor.TestGraceWhileSuspended", "rss.TestNoForecastAcrossAGap"}, ""},
	{"E5", "exit codes 0:125, 128+n", []string{"supervisor/hold.TestExitStatus", "supervisor/hold.TestDeathBySignal", "cmd/rsswarden.TestSlurmJobSurvivesItsWatcher"}, ""},
	{"E6", "srun without a terminal, and its job control", []string{"supervisor/hold.TestJobControl", "supervisor/hold.TestTerminalSignalsOnce", "cmd/rsswarden.TestSlurmTerminal"}, ""},
	{"E7", "a launcher needs its group and session", []string{"supervisor/hold.TestSameGroupAndSession", "supervisor/hold.TestTwin"}, ""},

	{"F1", "it blocks on its log: a hung file system, a full disk, a dead pipe", []string{
		"cmd/rsswarden.TestPartOfOursFails/stderr full", "cmd/rsswarden.TestPartOfOursFails/stderr closed", "cmd/rsswarden.TestPartOfOursFails/stderr not read",
		"cmd/rsswarden.TestPartOfOursFails/events not read", "cmd/rsswarden.TestFrozenRecord", "supervisor/event.TestStreamFullQueueDropsSamplesOnly"}, ""},
	{"F2", "the kernel kills it first", []string{
		"cmd/rsswarden.TestPartOfOursFails/watcher OOM-killed", "cmd/rsswarden.TestDeathByGroup", "supervisor.TestOOMGroup"}, ""},
	{"F3", "mlockall fails", nil, "nothing locks memory: what is charged for us must be able to go"},
	{"F4", "it leaks, memory or descriptors", []string{
		"supervisor/limit.TestDescriptors", "supervisor.TestEndingKeepsNoDescriptor", "rss.TestTrendIsBounded", "supervisor/diagnosis.TestMemoryIsBounded",
		"supervisor/policy.TestMemoryIsBounded", "cmd/rsswardend.TestChurn"}, ""},
	{"F5", "mmap_lock: reading smaps stalls the trainer", []string{
		"rss/proctree.TestBudgetLengthyInPieces", "rss/proctree.TestBudgetForbids", "supervisor.TestPSSReaderReadsLargeOnesInPieces"}, ""},
	{"F6", "a hook of the user's hangs, forks, or needs memory that is not there", []string{
		"supervisor/action.TestProgramThatRunsTooLong", "supervisor/action.TestProgramsOneAtATime", "supervisor.TestExecHoldsNothingUp", "supervisor.TestExecThatFails", "supervisor.TestAlertsNeedRoom"}, ""},
	{"F7", "the clock is set", []string{"supervisor.TestRunTime", "rss.TestTrendIgnoresTimeGoingBack", "supervisor/diagnosis.TestClockGoesBack", "cmd/rsswarden/cgroup2.TestCgroup2/ClockSet"}, ""},
	{"F8", "a reload brings a bad configuration", []string{"supervisor/config.TestProblemNamesThePlace", "cmd/rsswarden.TestSiteScripts"},
		"nothing is reloaded: what is wrong is said before anything is started"},
	{"F9", "its crash ends or orphans the job", []string{
		"cmd/rsswarden.TestCommandSurvivesItsWatcher", "cmd/rsswarden.TestTrainingSurvivesItsWatcher", "cmd/rsswarden.TestHolderOfRunKilled"}, ""},
	{"F10", "two supervisors, one in the other", []string{"cmd/rsswarden.TestRunWithinRun", "supervisor/hold.TestShellUnderHolder", "cmd/rsswarden.TestAttachUnderRun"}, ""},
	{"F11", "the log is flooded ten times a second", []string{"supervisor/tell.TestLinesAreRationed", "supervisor/tell.TestFaultsAreAllInTheStream", "supervisor/policy.TestWarningsThin"}, ""},
	{"F12", "a program that notifies stays a zombie", []string{"supervisor/alert.TestProgramIsKilled", "supervisor/action.TestProgramsClose"}, ""},
	{"F13", "a kill that failed is told as success", []string{
		"supervisor/action.TestStopOfSome", "supervisor/action.TestStopOfTheUnkillable", "supervisor/action.TestSignal", "supervisor/policy.TestAStopThatFailed"}, ""},
	{"F14", "a file of metrics is read half written", []string{"supervisor/textfile.TestReadersSeeWhole"}, ""},
}

// TestCases: each case is there once, in its order, with tests that there are or with
// a reason.
func TestCases(t *testing.T) {
	var want, got []string
	for _, group := range []struct {
		letter string
		n      int
	}{{"A", 16}, {"B", 9}, {"C", 11}, {"D", 20}, {"E", 7}, {"F", 14}} {
		for n := range group.n {
			want = append(want, fmt.Sprint(group.letter, n+1))
		}
	}
	for _, c := range cases {
		got = append(got, c.id)
		if c.what == "" || len(c.tests) == 0 && c.why == "" {
			t.Errorf("%s has neither a test nor a reason", c.id)
		}
		wantTests(t, c.id, c.tests)
	}
	if !slices.Equal(got, want) {
		t.Errorf("cases %v\nwant  %v", got, want)
	}
}
