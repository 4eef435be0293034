#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

// What a watcher leaves open in its threads: faults, the profiler's clock and
// the two signals of glibc.
static const uint64_t watcher_open = HOLD_FAULTS | RAW_BIT(SIGPROF) | RAW_BIT(32) | RAW_BIT(33);

static struct raw_action before[65];
static int handler_fd = -1;
static pid_t self;
static pid_t unmasked; // the watcher's thread that starts a program

uint64_t hold_now(void) {
	struct timespec t = {0, 0};
	if (raw_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0, 0) != 0) clock_gettime(CLOCK_MONOTONIC, &t); // it is refused: the vDSO
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

// of_runtime: a fault, a profiling tick, a preemption, glibc's setxid. These
// stay with the handler that was there.
static int of_runtime(int sig, const siginfo_t *si) {
	if (si->si_code > 0) return (HOLD_FAULTS & RAW_BIT(sig)) != 0 || sig == SIGPROF;
	return si->si_code == SI_TKILL && si->si_pid == self;
}

static void chain(int sig, siginfo_t *si, void *context) {
	void *was = (void *)before[sig].handler;
	if (was != (void *)SIG_DFL && was != (void *)SIG_IGN) {
		before[sig].handler(sig, si, context);
	} else if (HOLD_FAULTS & RAW_BIT(sig)) { // before there is a runtime: it is to end us
		struct raw_action a = {0};
		raw_sigaction(sig, &a, NULL);
	}
}

// The Go runtime takes many signals out of every thread's mask, whatever it
// inherited (runtime/signal_unix.go, blockableSig). Those come here, the rest
// to the signalfd.
static void in_holder(int sig, siginfo_t *si, void *context) {
	int saved = errno;
	if (of_runtime(sig, si)) {
		chain(sig, si, context);
	} else {
		struct hold_record r = {sig, si->si_code, si->si_pid, si->si_uid, 0, hold_now(), 0};
		if (si->si_code <= 0) r.parent = hold_parent(si->si_pid);
		if (si->si_code == SI_QUEUE) r.value = (uint64_t)(uintptr_t)si->si_value.sival_ptr;
		struct iovec v = {&r, sizeof r};
		if (write(handler_fd, &r, sizeof r) < 0 && errno != EAGAIN && writev(handler_fd, &v, 1) < 0) {
			// Refused both ways. EAGAIN is a full pipe: thousands wait there, and the
			// kernel merges signals too.
		}
	}
	errno = saved;
}

// A watcher's threads block all but watcher_open. One that the runtime has just made does not
// yet, and one that starts a program has the command's mask, for that program to inherit it:
// they block the signal from here on, and it is put back, to stay pending.
static void in_watcher(int sig, siginfo_t *si, void *context) {
	int saved = errno;
	uint64_t mask = ~watcher_open, had;
	ucontext_t *thread = context;
	int starts = __atomic_load_n(&unmasked, __ATOMIC_RELAXED) == (pid_t)syscall(SYS_gettid);
	if (sig == SIGSTKFLT && si->si_code == SI_TKILL && si->si_pid == self) {
		if (!starts) memcpy(&thread->uc_sigmask, &mask, sizeof mask);
	} else if (of_runtime(sig, si)) {
		chain(sig, si, context);
	} else if (!(watcher_open & RAW_BIT(sig))) {
		memcpy(&had, &thread->uc_sigmask, sizeof had);
		if (starts) mask = had | RAW_BIT(sig);
		memcpy(&thread->uc_sigmask, &mask, sizeof mask);
		kill(self, sig);
	}
	errno = saved;
}

// The Go runtime unblocks SIGTERM and the like when it starts, and ends the process by them
// until hold_install: in a holder that wakes, the command's. So its handlers stay aside for
// what is caught before it: the linker has its calls of sigaction(3) come here (--wrap).
static uint64_t caught;

int __real_sigaction(int sig, const struct sigaction *set, struct sigaction *old);
int __wrap_sigaction(int sig, const struct sigaction *set, struct sigaction *old);

int __wrap_sigaction(int sig, const struct sigaction *set, struct sigaction *old) {
	if (sig < 1 || sig > 64 || !(caught & RAW_BIT(sig))) return __real_sigaction(sig, set, old);
	if (old != NULL) {
		memset(old, 0, sizeof *old);
		old->sa_sigaction = before[sig].handler;
		old->sa_flags = (int)before[sig].flags;
	}
	if (set != NULL) {
		before[sig].handler = set->sa_sigaction;
		before[sig].flags = (unsigned long)set->sa_flags;
	}
	return 0;
}

// hold_catch leaves out what glibc keeps.
void hold_catch(int mode, int fd) {
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_sigaction = mode == HOLD_HANDLER_HOLDER ? in_holder : in_watcher;
	a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigfillset(&a.sa_mask);
	handler_fd = fd;
	self = getpid();
	for (int s = 1; s <= 64; s++) {
		if ((RAW_BIT(SIGKILL) | RAW_BIT(SIGSTOP) | RAW_BIT(32) | RAW_BIT(33)) & RAW_BIT(s)) continue;
		if (raw_sigaction(s, NULL, &before[s]) == 0 && __real_sigaction(s, &a, NULL) == 0) caught |= RAW_BIT(s);
	}
}

int hold_install(int mode, int fd) {
	struct raw_action fault;
	handler_fd = fd;
	self = getpid();
	if (self <= 0) return EPERM; // refused: in kill(2) the result would stand for all processes
	if (raw_sigaction(SIGSEGV, NULL, &fault) < 0) return errno;
	for (int s = 1; s <= 64; s++) {
		if (s == SIGKILL || s == SIGSTOP || caught & RAW_BIT(s) || raw_sigaction(s, NULL, &before[s]) < 0) continue;
		// Flags and restorer as the runtime set them for a fault: on the
		// alternate stack, with siginfo.
		struct raw_action a = fault;
		a.handler = mode == HOLD_HANDLER_HOLDER ? in_holder : in_watcher;
		a.flags |= SA_SIGINFO | SA_ONSTACK | SA_RESTART;
		a.mask = ~UINT64_C(0);
		raw_sigaction(s, &a, NULL);
	}
	return 0;
}

int hold_mask_thread(pid_t tid) { return (int)syscall(SYS_tgkill, self, tid, SIGSTKFLT) < 0 ? errno : 0; }

void hold_unmask_begin(void) { __atomic_store_n(&unmasked, (pid_t)syscall(SYS_gettid), __ATOMIC_RELAXED); }

void hold_unmask_end(void) { __atomic_store_n(&unmasked, 0, __ATOMIC_RELAXED); }

static int is_stopped(pid_t pid, int flags) {
	siginfo_t si;
	memset(&si, 0, sizeof si);
	return waitid(P_PID, (id_t)pid, &si, WSTOPPED | WNOHANG | flags) == 0 && si.si_pid == pid && si.si_code == CLD_STOPPED;
}

// hold_stop must not leave us stopped beside a running command. SIGCONT
// takes a pending stop signal away, and reaches the command before us (the
// kernel walks a group newest member first). So: make the stop signal
// pending, look whether the command is stopped still, only then let it act.
int hold_stop(int sig, pid_t command) {
	uint64_t bit = RAW_BIT(sig), old;
	struct raw_action dfl = {0}, was;
	dfl.handler = (void *)SIG_DFL;
	if (raw_sigaction(sig, &dfl, &was) < 0) return 0;
	raw_sigmask(SIG_BLOCK, &bit, &old);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
	int stop = is_stopped(command, WNOWAIT);
	if (stop) {
		is_stopped(command, 0); // takes the report, so that it comes once
		raw_sigmask(SIG_UNBLOCK, &bit, NULL);
	} else {
		struct timespec now = {0, 0};
		siginfo_t si;
		syscall(SYS_rt_sigtimedwait, &bit, &si, &now, sizeof bit);
	}
	raw_sigmask(SIG_SETMASK, &old, NULL);
	raw_sigaction(sig, &was, NULL);
	return stop;
}

void hold_die(int sig) {
	struct rlimit none = {0, 0};
	struct raw_action dfl = {0};
	uint64_t mask = ~RAW_BIT(sig);
	// The command's core, if any, is written; ours would hide it. A core
	// pattern that pipes does not look at the limit, but at dumpable.
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	dfl.handler = (void *)SIG_DFL;
	raw_sigaction(sig, &dfl, NULL);
	raw_sigmask(SIG_SETMASK, &mask, NULL);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
	pid_t pid = getpid();
	if (pid > 0) kill(pid, sig); // -1, where it is refused, stands for all processes
}

// hold_forward sends sig on. A signal from sigqueue(3) keeps its value and sender; the
// kernel does not allow that for a plain kill(2).
int hold_forward(int pidfd, pid_t pid, int sig, int code, pid_t from, uid_t uid, uint64_t value) {
	siginfo_t si, *info = NULL;
	if (code == SI_QUEUE) {
		memset(&si, 0, sizeof si);
		si.si_signo = sig;
		si.si_code = SI_QUEUE;
		si.si_pid = from;
		si.si_uid = uid;
		si.si_value.sival_ptr = (void *)(uintptr_t)value;
		info = &si;
	}
	if (pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, sig, info, 0) == 0) return 0;
	if (pidfd >= 0 && errno == ESRCH) return ESRCH;
	if (info != NULL && syscall(SYS_rt_sigqueueinfo, pid, sig, info) == 0) return 0;
	return kill(pid, sig) == 0 ? 0 : errno;
}

// after_name reads /proc/PID/stat and returns what follows the name, or NULL. It runs in a
// signal handler.
static char *after_name(pid_t pid, char *stat, size_t room) {
	char path[32] = "/proc/", digits[12];
	int n = 6, d = 0;
	if (pid <= 0) return NULL;
	for (pid_t p = pid; p > 0; p /= 10) digits[d++] = (char)('0' + p % 10);
	while (d > 0) path[n++] = digits[--d];
	memcpy(path + n, "/stat", 6);
	int fd = (int)raw_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0) return NULL;
	long size = raw_call(SYS_read, fd, (long)stat, (long)room - 1, 0, 0, 0), end;
	raw_call(SYS_close, fd, 0, 0, 0, 0, 0);
	if (size <= 0) return NULL;
	stat[size] = 0;
	for (end = size; end >= 0 && stat[end] != ')'; end--) {} // the name may hold anything, ")" too
	return end < 0 || end + 4 >= size ? NULL : stat + end + 2;
}

enum { STAT_ROOM = 512 }; // the first fields, and a name of 64 bytes at most

// hold_parent reads field 4.
pid_t hold_parent(pid_t pid) {
	char stat[STAT_ROOM], *c = after_name(pid, stat, sizeof stat);
	pid_t parent = 0;
	if (c == NULL) return 0;
	for (c += 2; *c >= '0' && *c <= '9' && parent < 1 << 22; c++) parent = parent * 10 + (*c - '0');
	return parent;
}

// hold_state reads field 3.
char hold_state(pid_t pid) {
	char stat[STAT_ROOM], *c = after_name(pid, stat, sizeof stat);
	return c == NULL ? 0 : *c;
}

void hold_read(int fd, struct hold_batch *b) {
	struct iovec all = {b->info, sizeof b->info};
	b->size = (int)read(fd, b->info, sizeof b->info);
	if (b->size < 0 && errno != EAGAIN && errno != EINTR) b->size = (int)readv(fd, &all, 1); // read is refused
	for (int i = 0; i < b->size / (int)sizeof *b->info; i++) {
		const struct signalfd_siginfo *si = &b->info[i];
		b->parent[i] = si->ssi_code <= 0 ? hold_parent((pid_t)si->ssi_pid) : 0;
	}
}

// hold_poll reads what has arrived before it returns to the Go runtime, which takes 50 µs
// and more to go on: a program that sends a signal and ends is gone by then.
int hold_poll(struct pollfd *fds, int n, int timeout, int signals, struct hold_batch *b) {
	int ready = poll(fds, (nfds_t)n, timeout);
	if (ready < 0) return -errno;
	if (fds[signals].revents != 0) hold_read(fds[signals].fd, b);
	return ready;
}

int hold_setmask(uint64_t mask, uint64_t *old) {
	return raw_sigmask(SIG_SETMASK, &mask, old) < 0 ? errno : 0;
}
