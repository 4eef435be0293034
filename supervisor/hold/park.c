#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"
#include "at_once.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

// The parked holder: this process starts the command, and is a loop around poll(2) from
// then on, before there is a Go runtime in it. A fork of it becomes the Go program, which
// reads options and gives its verdict, and then the watcher. Where anything but the
// command's plain end happens the loop returns: the runtime starts, and the Go holder takes
// over in the same process. Before the command is started, whatever is not as expected
// leaves all to the Go holder; afterwards nothing is allocated here.

struct hold_parked hold_parked = {.link = -1, .pidfd = -1, .signals = -1, .noted = -1, .wake = -1, .override = -1};

static struct hold_parked *const p = &hold_parked;

enum { SLICE = 100 /* ms */, SLICES = 40, RETRY = 10000 /* ms */, REAP = 200 /* ms, reapWait */, ANSWER = 200 /* ms, answerWait */, GIVEN_BACK = 200 /* ms */, QUIET = 1000 /* ms */, STREAMS = 64 };

static int streams[STREAMS], nstreams, null = -1;
static unsigned moved; // counts what was read or taken

// move_up moves a descriptor above those that the user may have closed.
static int move_up(int fd) {
	int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
	if (fd >= 0) close(fd);
	return up;
}

static void shut(int *fd) {
	if (*fd >= 0) close(*fd);
	*fd = -1;
}

// find_streams notes the pipes and sockets that the user passed through us to the command.
// The Go holder's releaseDescriptors says why they are closed.
static int find_streams(void) {
	DIR *d = opendir("/proc/self/fd");
	if (d == NULL) return 0;
	nstreams = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL && nstreams < STREAMS;) {
		int fd = atoi(e->d_name);
		struct stat st;
		if (e->d_name[0] == '.' || fd == 2 || fcntl(fd, F_GETFD) != 0 || fstat(fd, &st) < 0) continue;
		if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) streams[nstreams++] = fd;
	}
	closedir(d);
	return nstreams < STREAMS;
}

static void release(void) {
	for (int i = 0; i < p->nkeep; i++) {
		if (p->keep[i] > 2) fcntl(p->keep[i], F_SETFD, FD_CLOEXEC);
		for (int n = 0; n < nstreams; n++)
			if (streams[n] == p->keep[i]) streams[n] = -1;
	}
	for (int n = 0; n < nstreams; n++) {
		if (streams[n] == 0 || streams[n] == 1) dup3(null, streams[n], 0);
		if (streams[n] > 2) close(streams[n]);
	}
	shut(&null);
}

// took takes the end of a child, and says whether it has ended. Where a seccomp filter refuses
// waitid(2), it is wait4(2).
static int took(pid_t pid, siginfo_t *si) {
	memset(si, 0, sizeof *si);
	if (waitid(P_PID, (id_t)pid, si, WEXITED | WNOHANG | WNOWAIT) == 0) {
		if (si->si_pid != pid || si->si_code >= CLD_TRAPPED) return 0;
		if (waitid(P_PID, (id_t)pid, si, WEXITED | WNOHANG) == 0) return moved++, 1;
	}
	int status;
	if (errno == ECHILD || wait4(pid, &status, WNOHANG, NULL) != pid || WIFSTOPPED(status)) return 0;
	si->si_pid = pid;
	si->si_code = WIFEXITED(status) ? CLD_EXITED : CLD_KILLED;
	si->si_status = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
	return moved++, 1;
}

static void take_watcher(void) {
	siginfo_t si;
	for (int n = 0; n < 500 && !took(p->watcher, &si); n++) nanosleep(&(struct timespec){0, 1000000}, NULL);
	p->watcher = 0;
}

static int send_message(uint32_t kind, int32_t a, int32_t b, uint64_t set) {
	struct hold_message m = {.kind = kind, .a = a, .b = b, .set = set};
	return p->link >= 0 && send(p->link, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof m;
}

int hold_drain(uint64_t set) {
	if (!send_message(HOLD_DRAIN, -1, 0, set)) return 0;
	p->draining |= set;
	return 1;
}

// verdict waits for the fork's word: 0 where it ended without one, -1 where it takes too long.
// The time in which all of us are stopped does not count.
static int verdict(int slices) {
	struct pollfd f = {p->link, POLLIN, 0};
	uint32_t word = 0;
	for (int n = 0; n < slices && f.revents == 0; n++) poll(&f, 1, SLICE);
	if (f.revents == 0) return -1;
	return recv(p->link, &word, sizeof word, MSG_DONTWAIT) == sizeof word ? (int)word : 0;
}

static void default_chld(int on) {
	struct raw_action a = {0};
	a.handler = on || !(hold_early.ignored & RAW_BIT(SIGCHLD)) ? (void *)SIG_DFL : (void *)SIG_IGN;
	raw_sigaction(SIGCHLD, &a, NULL);
}

// leave has the Go holder do everything, as if there were no such thing as parking.
static void leave(void) {
	shut(&p->link);
	shut(&p->signals);
	shut(&p->noted);
	shut(&p->wake);
	shut(&null);
	if (p->watcher > 0) take_watcher();
	default_chld(0);
}

// tell tells the watcher of the command's end, once there is room for that behind the signals.
static void tell(void) {
	int exited = p->code == CLD_EXITED;
	if (p->ended && !p->told) p->told = send_message(HOLD_EXIT, exited ? p->status : 0, exited ? 0 : p->status, 0);
}

// children looks at all that have ended. It says that one is left for the Go holder.
static int children(int lose) {
	siginfo_t si;
	int wake = 0;
	if (!p->ended) {
		if (took(p->pid, &si)) {
			p->ended = 1, p->code = si.si_code, p->status = si.si_status;
			if (p->verdict != NULL) __atomic_store_n(&p->verdict->over, p->code == CLD_EXITED && p->status < 128 ? 1 : -1, __ATOMIC_RELEASE);
			if (p->watcher > 0) kill(p->watcher, SIGCONT); // a stopped one is to flush too
		} else {
			memset(&si, 0, sizeof si);
			wake = waitid(P_PID, (id_t)p->pid, &si, WSTOPPED | WNOWAIT | WNOHANG) == 0 && si.si_pid == p->pid && si.si_code == CLD_STOPPED;
		}
	}
	for (;;) {
		memset(&si, 0, sizeof si);
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0) {
			if (p->watcher > 0 && took(p->watcher, &si)) p->watcher = 0;
			return wake || (errno != ECHILD && !p->ended);
		}
		if (si.si_pid == 0 || si.si_code >= CLD_TRAPPED || (!p->ended && si.si_pid == p->pid)) return wake;
		int watcher = si.si_pid == p->watcher;
		if (watcher && !lose && (!p->ended || si.si_code != CLD_EXITED || si.si_status != 0)) return 1;
		if (!took(si.si_pid, &si)) return wake;
		if (watcher) p->watcher = 0;
	}
}

// hear takes messages of the watcher. One for the Go holder is left there, unless it is to
// be lost.
static int hear(int lose) {
	struct hold_message m;
	while (p->link >= 0) {
		ssize_t n = recv(p->link, &m, sizeof m, MSG_PEEK | MSG_DONTWAIT);
		if (n < 0 && errno == ECONNRESET) n = recv(p->link, &m, sizeof m, MSG_PEEK | MSG_DONTWAIT); // it has ended, and not read all
		if (n < 0) return errno != EAGAIN && errno != EINTR;
		if (n == 0) {
			if (!p->ended && !lose) return 1;
			shut(&p->link);
			return moved++, 0;
		}
		uint64_t own = 0;
		syscall(SYS_rt_sigpending, &own, sizeof own);
		int taken = n == sizeof m;
		if (!taken) {
		} else if (m.kind == HOLD_SUBREAPER) {
			prctl(PR_SET_CHILD_SUBREAPER, m.a, 0, 0, 0);
		} else if (m.kind == HOLD_OVERRIDE) {
			p->override = m.a & 0xff;
		} else if (m.kind == HOLD_PENDING && (own & m.set) == 0) {
			// They were for it alone, but those of a request that it did not know yet.
			if ((m.set & ~p->draining) != 0) hold_drain(m.set & ~p->draining);
		} else if (m.kind == HOLD_DRAINED) {
			p->draining &= ~m.set;
		} else {
			taken = 0;
		}
		if (!taken && !lose && !p->ended) return 1;
		if (recv(p->link, &m, sizeof m, MSG_DONTWAIT) < 0) return 0;
		moved++;
	}
	return 0;
}

// settle waits until the watcher has taken what was evidence for the last signal of a number of
// which there is another, as in signals.go. One that has not by then is the Go holder's to judge.
static void settle(void) {
	uint64_t own = 0;
	struct pollfd f[2] = {{p->link, POLLIN, 0}, {p->pidfd, POLLIN, 0}};
	if (p->draining != 0 && p->link >= 0 && !p->ended) syscall(SYS_rt_sigpending, &own, sizeof own);
	own &= ~RAW_BIT(SIGCHLD);
	for (int n = 0; (p->draining & own) != 0 && n < ANSWER / 10 && f[1].revents == 0; n++) {
		poll(f, 2, 10);
		if (f[0].revents != 0 && hear(0)) return;
	}
}

// gone ends this process as the command ended.
static _Noreturn void gone(void) {
	if (p->override >= 0) _exit(p->override);
	if (p->code == CLD_EXITED) _exit(p->status);
	hold_die(p->status);
	_exit(128 + p->status);
}

// unready says that a command was started at once, and the fork has no settings yet.
static int unready(void) { return p->verdict != NULL && !__atomic_load_n(&p->verdict->ready, __ATOMIC_ACQUIRE); }

// no_setup says that the Go holder would not know what to do. While the command runs it would
// find that out.
static int no_setup(void) { return p->verdict == NULL ? p->setup == NULL : p->ended && unready(); }

// room says that a Go runtime would start here: one has started in a fork, which ends at once.
// Where none does, or it hangs, this process must not become one. Each call that one needs
// is also made here once. In the fork it sets the role.
static int room(void) {
	siginfo_t si;
	struct timespec pause = {0, 200000};
	if (no_setup() || hold_refused(1) != NULL || !hold_reserve()) return 0;
	char name[16] = "";
	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, "rss-watcher"); // from its first moment: it is no orphan of the command's
	pid_t pid = hold_fork_oom_first();
	if (pid != 0) prctl(PR_SET_NAME, name);
	if (pid == 0) {
		hold_unreserve(1);
		if (hold_missing() != NULL) _exit(1);
		p->role = HOLD_TRIAL;
		return 1;
	}
	for (int n = 0; pid > 0 && n < 10000; n++, nanosleep(&pause, NULL))
		if (took(pid, &si)) {
			if (si.si_code == CLD_EXITED && si.si_status == 0) return 1;
			pid = 0;
		}
	if (pid > 0) kill(pid, SIGKILL);
	hold_unreserve(0);
	return 0;
}

// wait_given_back waits where the watcher has ended: it may have been an OOM kill, and another
// may come, of which the kernel finds the process no longer and has not given back the memory
// yet. What a fork takes, if only for its stack in the kernel, would have it kill one more.
static void wait_given_back(void) {
	struct pollfd f[2] = {{p->link, 0, 0}, {p->pidfd, POLLIN, 0}};
	if (!p->ended && poll(f, 1, 0) > 0 && f[0].revents & POLLHUP) poll(f + 1, 1, GIVEN_BACK);
}

static const char no_process[] = "no process can be made";
static int unmade; // no process could be made for the command

// begin starts the command.
static int begin(struct hold_child *c) {
	if (p->subreaper) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	p->pid = hold_spawn(c);
	unmade = p->pid < 0;
	if (p->pid > 0 && c->exec_errno == 0) return 1;
	prctl(PR_SET_CHILD_SUBREAPER, hold_early.subreaper, 0, 0, 0);
	return p->pid = 0;
}

// parked sleeps until there is something for the Go holder.
static void parked(void) {
	uint64_t retry = 0; // there was no room: when to look again
	uint64_t reap = 0;  // the watcher has flushed: until when to wait for its end
	int slim = 0;       // nothing has happened since the pages of our files were given back
	for (;;) {
		tell();
		if (p->ended && p->link < 0) {
			if (reap == 0) reap = hold_now() + (uint64_t)REAP * 1000000;
			if (p->watcher == 0 || hold_now() >= reap) gone();
		}
		// The time in which a verdict may be waited for is the fork's here too.
		if (p->ended && p->end == 0) p->end = hold_now() + (uint64_t)(p->flush + (unready() ? SLICE * SLICES : 0)) * 1000000;
		struct pollfd f[3] = {{p->ended ? -1 : p->pidfd, POLLIN, 0}, {p->signals, POLLIN, 0}, {p->link, p->ended && !p->told ? POLLIN | POLLOUT : POLLIN, 0}};
		uint64_t until = reap != 0 ? reap : p->ended ? p->end : retry, now = hold_now();
		int left = until == 0 ? (slim ? -1 : QUIET) : until > now ? (int)((until - now) / 1000000) + 1 : 0;
		int got = raw_poll(f, 3, left), failed = got < 0 ? -got : 0, wake = failed != 0 && failed != EINTR;
		slim = until == 0 && got == 0;
		if (slim) {
			hold_slim();
			continue;
		}
		unsigned before = moved;
		if (failed != 0) f[1].revents = POLLIN; // for good, maybe: what it would show is tried
		if (retry != 0 && hold_now() >= retry) wake = 1;
		if (f[1].revents != 0) {
			settle();
			p->read = hold_now();
			hold_read(p->signals, &p->batch);
			moved += p->batch.size > 0;
			if (p->batch.size < 0 && errno != EAGAIN) wake = 1;
			if (!p->ended && hold_pass()) wake = 1;
		}
		// A signal comes before the command's end, as in the Go holder.
		if (!wake) wake = children(0) | hear(0);
		if (p->end != 0 && hold_now() >= p->end) wake = 1;
		if (wake) wait_given_back();
		if (wake && room()) return;
		if (wake) {
			retry = hold_now() + (uint64_t)RETRY * 1000000;
			if (p->end != 0 && hold_now() >= p->end) {
				if (p->watcher > 0 && p->link >= 0) kill(p->watcher, SIGKILL);
				gone();
			}
			if (!p->ended) hold_pass_all();
			children(1);
			hear(1);
		}
		if (wake || moved == before) nanosleep(&(struct timespec){0, 10000000}, NULL); // never spin
		p->batch.size = 0;
	}
}

// hold_park returns in three ways, which hold_parked.role tells apart: in a fork, which is to
// become the watcher; once the command is started and the Go holder is to take over; and
// without having done anything.
void hold_park(char **argv, char **envp) {
	static const size_t size = (size_t)1 << 20;
	const uint64_t all = ~UINT64_C(0), faults = HOLD_FAULTS & ~hold_early.blocked;
	int pair[2], pipes[2];
	static struct hold_child c;
	int quiet = 0;
	char **bare = hold_command(argv, &quiet);
	const char *off = getenv("RSSWARDEN");
	if (bare == NULL || (off != NULL && strcmp(off, "off") == 0)) return;
	struct hold_verdict *v = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (v == MAP_FAILED) return;
	default_chld(1); // ignored, no child could be waited for
	raw_sigmask(SIG_BLOCK, &faults, NULL); // sent by a process they can wait; a real one ends us all the same
	p->holder = getpid(), p->parent = getppid();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) goto undo;
	p->link = move_up(pair[0]);
	pair[1] = move_up(pair[1]);
	p->signals = move_up((int)syscall(SYS_signalfd4, -1, &all, sizeof all, SFD_CLOEXEC | SFD_NONBLOCK));
	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0) {
		p->noted = move_up(pipes[0]);
		p->wake = move_up(pipes[1]);
	}
	null = move_up(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (p->link < 0 || pair[1] < 0 || p->signals < 0 || p->noted < 0 || p->wake < 0 || null < 0) goto undo_pair;
	p->at_once = find_streams() && hold_at_once(&c, argv, bare, envp);
	p->child = &c;
	int begun = p->at_once && begin(&c); // before the fork, which the command need not wait for
	hold_small_mappings();
	if ((p->watcher = fork()) == 0) {
		int link = pair[1];
		p->begun = p->pid, p->left_out = c.left_out;
		p->pid = 0;
		if (p->dir != NULL) hold_make_run_directory();
		if (p->at_once) release(); // a pipe held open here would hide that the command has closed it
		leave();
		p->role = HOLD_FORKED, p->link = link, p->verdict = v, p->room = size;
		hold_as_watcher(argv);
		hold_dispositions(0);
		hold_catch(HOLD_HANDLER_WATCHER, -1);
		if (begun && hold_early.site) hold_late(p->begun, v);
		raw_sigmask(SIG_UNBLOCK, &faults, NULL);
		return;
	}
	if (p->watcher < 0 && !begun) hold_in_place(bare, quiet, no_process); // nor could a Go runtime make a thread
	if (p->watcher < 0) p->watcher = 0; // as if it had ended: another is started once there is room
	close(pair[1]);
	if (begun) {
		p->verdict = v, p->flush = AT_ONCE_FLUSH;
	} else {
		int word = verdict(SLICES);
		if (word == HOLD_VERDICT && hold_asked_for(v, &c, argv, envp) && find_streams() && !begin(&c) && unmade) word = 0;
		if (word == 0) {
			if (unmade) kill(p->watcher, SIGKILL);
			take_watcher();
			hold_in_place(bare, quiet, unmade ? no_process : "its start failed"); // does not return
		}
		if (word < 0) kill(p->watcher, SIGKILL);
		// What does not start here the Go holder tries again, and says so.
		if (word != HOLD_VERDICT || p->pid == 0) goto undo;
	}
	p->early = c.pending, p->began = c.time, p->left_out = c.left_out;
	p->pidfd = move_up((int)syscall(SYS_pidfd_open, p->pid, 0));
	if (!begun) {
		struct hold_answer answer = {.pid = p->pid, .left_out = c.left_out};
		send(p->link, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (p->verdict == NULL) munmap(v, size);
	free(c.paths);
	free(c.envp);
	free(c.shell);
	release();
	hold_slim();
	parked();
	if (p->role != HOLD_TRIAL) p->role = HOLD_WOKEN;
	if (p->verdict != NULL) __atomic_store_n(&p->verdict->over, -1, __ATOMIC_RELEASE); // hold_late waits no longer
	hold_catch(p->role == HOLD_TRIAL ? HOLD_HANDLER_WATCHER : HOLD_HANDLER_HOLDER, p->wake);
	raw_sigmask(SIG_UNBLOCK, &faults, NULL);
	return;
undo_pair:
	if (pair[1] >= 0) close(pair[1]);
undo:
	munmap(v, size);
	leave();
	raw_sigmask(SIG_UNBLOCK, &faults, NULL);
}
