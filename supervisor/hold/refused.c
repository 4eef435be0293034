#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A Go program ends, often without a word, when a system call that its runtime rests
// on fails. A seccomp filter may refuse one that the command never makes. So each is
// made once, with arguments that change nothing, where there is a filter.

static int ok(long result) { return result >= 0; }

static int memory(void) {
	size_t size = 4096;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) return 0;
	int all = mprotect(p, size, PROT_READ) == 0 && madvise(p, size, MADV_DONTNEED) == 0;
	return munmap(p, size) == 0 && all;
}

static int polling(void) {
	struct epoll_event e = {.events = EPOLLIN};
	uint64_t one = 1;
	int poll = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int all = poll >= 0 && event >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, event, &e) == 0 &&
		write(event, &one, sizeof one) == sizeof one && ok(epoll_pwait(poll, &e, 1, 0, NULL)) &&
		read(event, &one, sizeof one) == sizeof one && ok(fcntl(event, F_GETFD));
	if (poll >= 0) close(poll);
	if (event >= 0) close(event);
	return all;
}

static int threads(void) {
	static uint32_t word;
	cpu_set_t set;
	struct timespec none = {0};
	pid_t pid = getpid(), tid = (pid_t)syscall(SYS_gettid);
	return pid > 0 && tid > 0 && ok(syscall(SYS_tgkill, pid, tid, 0)) && ok(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1)) &&
		ok(sched_getaffinity(0, sizeof set, &set)) && ok(sched_yield()) && ok(nanosleep(&none, NULL));
}

static int signals(void) {
	struct raw_action a;
	uint64_t mask;
	stack_t stack;
	return ok(raw_sigaction(SIGUSR1, NULL, &a)) && ok(raw_sigmask(SIG_BLOCK, NULL, &mask)) && ok(sigaltstack(NULL, &stack));
}

// hold_refused names what a seccomp filter does not let the Go runtime do, or NULL. Where
// there is no filter nothing is tried, unless always is set.
const char *hold_refused(int always) {
	if (!always && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_DISABLED) return NULL;
	if (!memory()) return "a seccomp filter refuses memory to it (mmap, mprotect, madvise)";
	if (!signals()) return "a seccomp filter refuses signals to it (rt_sigaction, rt_sigprocmask, sigaltstack)";
	if (!threads()) return "a seccomp filter refuses threads to it (futex, tgkill, sched_*, nanosleep)";
	if (!polling()) return "a seccomp filter refuses polling to it (epoll, eventfd2)";
	return NULL;
}
