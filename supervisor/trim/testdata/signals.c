// signals COUNTERS DATA KIND
//
// Counts real-time signals, of which number i carries the value i, while the
// main thread waits in KIND. There is no SA_RESTART. Where KIND opens the mask
// only for the call, each handler ends one.
#include "stand.h"

enum { HANDLED, DISORDER, EINTRS, OTHER, SEEN, OUTSIDE };

static volatile sig_atomic_t waiting;

static void handler(int sig, siginfo_t *info, void *context) {
	(void)sig;
	(void)context;
	if ((uint64_t)info->si_value.sival_int != counters[HANDLED])
		counters[DISORDER]++;
	if (!waiting)
		counters[OUTSIDE]++;
	counters[HANDLED]++;
}

// lender sleeps where the main thread's call does not lend its thread.
static void *lender(void *arg) {
	(void)arg;
	for (;;)
		asleep("futex", -1);
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	const char *kind = argv[3];
	int masked = !strcmp(kind, "epoll_pwait") || !strcmp(kind, "ppoll");
	stand(argv[1]);
	map_data(argv[2]);
	sigset_t rt, none;
	sigemptyset(&none);
	sigemptyset(&rt);
	sigaddset(&rt, SIGRTMIN);
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGRTMIN, &sa, 0);
	sigprocmask(SIG_BLOCK, &rt, 0);
	int p[2], ep = epoll_create1(0);
	struct epoll_event e = {EPOLLIN, {0}};
	if (pipe(p) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) < 0)
		fail("pipe");
	if (!strcmp(kind, "read"))
		thread(lender, 0);
	if (!masked)
		sigprocmask(SIG_UNBLOCK, &rt, 0);
	ready();
	for (;;) {
		struct pollfd f = {p[0], POLLIN, 0};
		char c;
		long r;
		waiting = 1;
		if (!strcmp(kind, "epoll_pwait"))
			r = epoll_pwait(ep, &e, 1, -1, &none);
		else if (!strcmp(kind, "ppoll"))
			r = ppoll(&f, 1, 0, &none);
		else if (!strcmp(kind, "epoll_wait"))
			r = epoll_wait(ep, &e, 1, -1);
		else if (!strcmp(kind, "read"))
			r = read(p[0], &c, 1);
		else
			return 2;
		waiting = !masked;
		count(r < 0 && errno == EINTR ? EINTRS : OTHER, 1);
		counters[SEEN] = counters[HANDLED];
	}
}
