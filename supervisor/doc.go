// Package supervisor is the watcher: it wires the parts that read memory,
// judge it, act on it and tell, and runs the loop.
//
// One goroutine owns all state: the loop in [Watch]. What can hang is done by
// goroutines of its own and comes back over channels: command lines, smaps and
// smaps_rollup of other processes, scontrol, writes to stderr and to the
// events file. Whatever of it fails is said once and left out from then on.
//
// The way of one full tick: proctree and cgroup files, then a [rss.Sample],
// then readings of every limit (package limit), then the ladder (package
// policy), then actions (package action), then events and lines on stderr.
// Between two full ticks a fast tick reads one counter of the binding limit,
// after a pause that follows from headroom and the fastest fill rate seen.
//
// The command does not depend on any of this. The watcher is a process of its
// own; a panic here ends it, the holder starts it again, and the command
// notices nothing.
//
// # When a part of ours fails
//
// The command's end is its own in every row but those that say otherwise, and comes
// 2 s later at most, for the watcher's last words. "Whole" is what report reads of
// record and journal together. Where a cell says nothing no test shows it. Below each
// row stand the tests that make the part fail; supervisor/trust holds the table to
// them, and this text and docs/promises.md to the table.
//
//	WHAT FAILS                                                                THE JOB                                THE RECORD                          ALERTS
//	the watcher is killed, is out of memory, panics, or a fault in C ends it  as bare                                whole, but for what no watcher saw  go on, perhaps told twice
//	  cmd/rsswarden.TestPartOfOursFails/watcher killed, /watcher OOM-killed, /watcher panics, /watcher gets SIGBUS, /record cut off, TestGoroutinePanics, TestGoroutinePanicsOnce, TestCommandSurvivesItsWatcher, TestTrainingSurvivesItsWatcher, TestSlurmJobSurvivesItsWatcher, supervisor/record.TestKilledAtAnyMoment
//	… four times                                                              as bare                                up to then                          end
//	  cmd/rsswarden.TestPartOfOursFails/watcher killed often, TestGoroutinePanicsAlways, supervisor/hold.TestWatcherRestarts
//	memory runs out in the cgroup                                             as bare beside a process of 12 MB      whole, but for what no watcher saw  —
//	  cmd/rsswarden/hunt.TestOOMTakesTheWatcher, TestOOMScore, TestHolderGivesBack
//	the watcher is stopped or hangs                                           as bare                                without what came meanwhile         none meanwhile
//	  cmd/rsswarden.TestPartOfOursFails/watcher stopped, supervisor/hold.TestWatcherFails, TestMuteWatcher
//	the holder panics, or what runs before and after it                       as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/holder panics, TestHolderPanics
//	the holder is killed, or a fault in C ends it                             runs on; who started us sees the kill  up to then; says unwatched          are resolved
//	  cmd/rsswarden.TestHolderOfRunKilled, TestHolderFaults, supervisor/hold.TestHolderKilled
//	the holder is stopped                                                     goes on, and so does the holder        —                                   —
//	  supervisor/hold.TestUnstick, supervisor.TestHolderIsLookedAfter
//	an attach is killed, stopped, or panics                                   knows nothing                          —                                   —
//	  cmd/rsswarden.TestAttachDies, TestAttachPanics
//	the kernel kills all of the cgroup                                        dies, as bare                          whole up to then                    —
//	  cmd/rsswarden.TestDeathByGroup
//	no room for two processes at the start                                    executed in our place                  none                                none
//	  supervisor/hold.TestNoRoom, TestNoRoomForTwo, TestNoRoomForTheUser, cmd/rsswarden.TestNoRoomKnowsTheOptions
//	pids.max is reached later                                                 as bare; up to 28 tasks are ours       whole                               none, says so
//	  cmd/rsswarden.TestPartOfOursFails/no tasks, supervisor/hold.TestPidsMax, cmd/rsswarden/hunt.TestOwnTasks
//	the watcher has no descriptors left                                       as bare                                holds the last reading, says so     none
//	  cmd/rsswarden.TestPartOfOursFails/no descriptors, rss/proctree.TestNoDescriptorLeft, TestNoDescriptorForAMember, TestNoDescriptorForOthers, rss/cgroup.TestNoDescriptorLeft, TestNoDescriptorOnTheWay
//	the watcher has no address space left                                     as bare                                up to then                          —
//	  cmd/rsswarden.TestPartOfOursFails/no address space
//	it starts with little (ulimit -v 2000000)                                 as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/little address space
//	the kernel has no system call newer than Linux 4.18                       as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/kernel of 4.18, supervisor.TestEndingWithoutPidfd
//	ptrace(2) is an old kernel's, is refused, or fails half-way               goes on, untouched by a trim           —                                   —
//	  cmd/rsswarden.TestTrimKernels, supervisor/trim.TestTracerKilled
//	signals interrupt watcher and holder all the time                         as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/interrupted, /holder interrupted
//	a signal that the watcher sends is refused (EPERM)                        as bare                                whole, says so once                 go on
//	  cmd/rsswarden.TestPartOfOursFails/stop not allowed, /signal not allowed
//	the hook raises, is slow, or finds garbage                                its data and end as bare               —                                   —
//	  supervisor/loader.TestHookFails, TestGarbage, TestUnknownTorch, TestHookRefused, cmd/rsswarden.TestBrokenHookNextRung
//	the record's disk is full or fails, its files are gone                    as bare                                whole in the journal                go on
//	  cmd/rsswarden.TestPartOfOursFails/record disk full, /record disk fails, /record gone, /record cut off, TestTruncatedRecord, supervisor/record.TestFullDisk
//	--record names no place for one: no directory, or not writable            as bare                                whole in the journal                go on
//	  cmd/rsswarden.TestPartOfOursFails/record nowhere
//	the record's disk hangs                                                   as bare, its end 2 s late at most      whole in the journal                go on
//	  cmd/rsswarden.TestPartOfOursFails/record disk hangs, TestFrozenRecord, TestHungRecordPlace, supervisor/record.TestHungDisk
//	the journal cannot be written                                             as bare                                whole, says so                      go on
//	  cmd/rsswarden.TestPartOfOursFails/state read-only
//	record and journal cannot be written                                      —                                      none, says so                       —
//	  supervisor/record.TestReadOnlyAndVanished, TestNoRoom
//	stderr or --events is full, closed, or read by nobody                     as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/stderr full, /stderr closed, /stderr not read, /events not read, supervisor/event.TestStreamThatCannotWriteSaysSoOnce
//	/proc is unmounted                                                        as bare                                whole, of whom it knew              go on
//	  cmd/rsswarden.TestPartOfOursFails/proc gone, supervisor.TestUnreadableTreeKeepsTheLast
//	a file in /proc is denied, gone, cut short, endless or nonsense           —                                      counts what is missing              —
//	  supervisor/limit.TestEachFileFails, rss/proctree.TestMalformedIsCounted, TestDenied, TestVanishAtAnyPoint
//	a process becomes another user's and cannot be read any more              as bare                                counts it, no --mem is told         —
//	  cmd/rsswarden.TestAnotherUserInTheTree
//	a file in /proc hangs (mmap_lock)                                         —                                      the last value, with its age        —
//	  supervisor.TestPSSReaderNeverBlocksTheLoop, TestCloseReadingHangs, TestCountsNeverBlockTheLoop, supervisor/limit.TestAgeOfPSS
//	a cgroup's files cannot be read                                           as bare                                whole, by the last limit; says so   go on
//	  cmd/rsswarden.TestPartOfOursFails/cgroup unmounted, supervisor/limit.TestLimitShrinks, TestEachFileFails, TestStepEnds
//	the runtime directory is removed                                          as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/runtime dir gone, supervisor/loader.TestRunDirGone, supervisor.TestSocketComesBack
//	a directory of ours hangs from the start (NFS, FUSE): --events, …         as bare                                —                                   go on
//	  cmd/rsswarden.TestHungMount
//	the program that carries alerts is gone or hangs                          as bare                                whole                               none, says so
//	  cmd/rsswarden.TestPartOfOursFails/alert program gone, /alert program hangs, supervisor/alert.TestProgram, TestProgramIsKilled
//	a receiver of alerts is away, refuses or hangs                            as bare                                —                                   come when it is back
//	  cmd/rsswarden.TestAlertsDelayNothing, TestAlertmanager
//	the textfile's directory is gone, full or hangs                           as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/textfile gone, TestTextfileTrouble, supervisor/textfile.TestHung
//	an exec= program fails or hangs                                           as bare                                whole, says so                      go on
//	  cmd/rsswarden.TestPartOfOursFails/exec fails, /exec hangs, supervisor.TestExecHoldsNothingUp, TestExecThatFails, supervisor/action.TestProgramThatRunsTooLong
//	scontrol hangs                                                            as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/scontrol hangs, slurm.TestRequeueCallsEnd
//	the wall clock is set                                                     as bare                                keeps its own time                  —
//	  cmd/rsswarden/cgroup2.TestCgroup2/ClockSet, supervisor.TestRunTime, TestClock
//	who leads for several ranks is killed                                     as without that                        the next one's goes on              go on, with the same labels
//	  cmd/rsswarden.TestTwoNodesFourRanks, supervisor/leader.TestLeadOfTheKilled, supervisor.TestHeirIsRecorded, TestAlertsOfTheNextLeader
//	rsswardend, the node's daemon, is killed                                  as bare                                whole                               go on
//	  cmd/rsswarden.TestPartOfOursFails/daemon killed
package supervisor
