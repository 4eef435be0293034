// readers COUNTERS DATA READERS SLEEPERS KIND MS ALARM
//
// READERS threads verify pages of DATA at random, SLEEPERS sleep, and the main
// thread sleeps in KIND: for ever where MS is -1, else for MS milliseconds at a
// time, after each of which it verifies some pages too. With ALARM 1 there is
// a SIGALRM each millisecond, which only the readers take.
#include "stand.h"
#include <sys/time.h>

enum { PAGES, WRONG, LOOPS, WOKEN, EINTRS, EARLY, SIGNALS, PAUSE, PAUSED, LONGEST, LAST_WOKEN };

static void onalarm(int sig) {
	(void)sig;
	count(SIGNALS, 1);
}

static void verify(uint64_t *state, int n) {
	for (int i = 0; i < n; i++) {
		if (!page_right(dice(state) % (data_len / PAGE)))
			count(WRONG, 1);
		count(PAGES, 1);
	}
}

static void *reader(void *arg) {
	uint64_t state = (uintptr_t)arg << 32, before = now();
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
	for (;;) {
		verify(&state, 4);
		uint64_t t = now();
		if (t - before > counters[LONGEST])
			counters[LONGEST] = t - before;
		before = t;
		if (!counters[PAUSE])
			continue;
		count(PAUSED, 1);
		while (counters[PAUSE])
			usleep(1000);
		count(PAUSED, -1);
		before = now();
	}
	return 0;
}

static void *sleeper(void *arg) {
	static const char *kinds[] = {"futex", "poll", "nanosleep", "epoll_wait"};
	for (;;)
		asleep(kinds[(uintptr_t)arg % 4], -1);
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 8)
		return 2;
	stand(argv[1]);
	map_data(argv[2]);
	long ms = atol(argv[6]);
	uint64_t state = 1;
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGALRM);
	sigprocmask(SIG_BLOCK, &s, 0);
	for (long i = 1; i <= atol(argv[3]); i++)
		thread(reader, (void *)i);
	for (long i = 1; i <= atol(argv[4]); i++)
		thread(sleeper, (void *)i);
	if (atoi(argv[7])) {
		struct sigaction sa = {.sa_handler = onalarm, .sa_flags = SA_RESTART};
		struct itimerval it = {{0, 1000}, {0, 1000}};
		sigaction(SIGALRM, &sa, 0);
		setitimer(ITIMER_REAL, &it, 0);
	}
	ready();
	for (;;) {
		uint64_t begin = now();
		long r = asleep(argv[5], ms);
		uint64_t took = now() - begin;
		if (r == -EINTR)
			count(EINTRS, 1);
		else if (ms < 0 || (r != 0 && r != -ETIMEDOUT))
			count(WOKEN, 1), counters[LAST_WOKEN] = r;
		else if (took < ms * 1000000ull)
			count(EARLY, 1);
		verify(&state, 4);
		count(LOOPS, 1);
	}
}
