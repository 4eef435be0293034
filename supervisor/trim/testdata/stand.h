// What the programs of the stand have in common.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)

// A page of numbers that the test reads while the program runs, and some of
// which it writes.
static volatile uint64_t *counters;

// The file that is trimmed: word i of it is mix(i).
static volatile uint64_t *data;
static size_t data_len;

static inline uint64_t mix(uint64_t x) {
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static inline uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t dice(uint64_t *state) {
	return mix((*state)++);
}

static inline void count(int which, uint64_t n) {
	__atomic_fetch_add(&counters[which], n, __ATOMIC_SEQ_CST);
}

static void fail(const char *what) {
	perror(what);
	exit(2);
}

// stand opens the counters, and has the kernel kill our process group when the
// test dies: its end of our standard input closes. That costs no thread.
static void stand(const char *path) {
	int fd = open(path, O_RDWR);
	if (fd < 0)
		fail(path);
	counters = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counters == MAP_FAILED)
		fail("mmap");
	close(fd);
	fcntl(0, F_SETOWN, -getpgrp());
	fcntl(0, F_SETSIG, SIGKILL);
	if (fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_ASYNC) < 0)
		fail("O_ASYNC");
}

static void map_data(const char *path) {
	struct stat s;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &s) < 0)
		fail(path);
	data_len = s.st_size;
	data = mmap(0, data_len, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (data == MAP_FAILED)
		fail("mmap");
	close(fd);
}

// page_right says whether a page of the file shows what is in it.
static inline int page_right(size_t page) {
	for (size_t w = page * WORDS; w < (page + 1) * WORDS; w++)
		if (data[w] != mix(w))
			return 0;
	return 1;
}

static void ready(void) {
	printf("ready %d\n", getpid());
	fflush(stdout);
}

static pthread_t thread(void *(*run)(void *), void *arg) {
	pthread_t t;
	if (pthread_create(&t, 0, run, arg))
		fail("pthread_create");
	return t;
}

// asleep sleeps in one of the calls that lend their thread; ms -1: for ever.
// The result is that of the call, or -errno.
__attribute__((unused)) static long asleep(const char *kind, long ms) {
	static uint32_t word;
	static __thread int ep = -1;
	long forever = ms < 0 ? 1000000 : ms;
	struct timespec t = {forever / 1000, forever % 1000 * 1000000};
	struct epoll_event e;
	long r;
	if (!strcmp(kind, "futex")) {
		r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, ms < 0 ? 0 : &t, 0, 0);
	} else if (!strcmp(kind, "poll")) {
		r = syscall(SYS_poll, 0, 0, ms);
	} else if (!strcmp(kind, "nanosleep")) {
		r = syscall(SYS_nanosleep, &t, 0);
	} else if (!strcmp(kind, "epoll_wait")) {
		if (ep < 0)
			ep = epoll_create1(0);
		r = syscall(SYS_epoll_wait, ep, &e, 1, ms);
	} else {
		fprintf(stderr, "asleep: %s?\n", kind);
		exit(2);
	}
	return r < 0 ? -errno : r;
}
