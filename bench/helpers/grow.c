// grow FILL_MIB RATE_MIB_S BURST_MIB: a process whose RSS grows at a rate. It
// fills at once, waits for a byte on standard input, grows by BURST_MIB at no
// more than the rate, and waits until standard input ends.
//
// What grows is mapped memory, the same 2 MiB over and over: each mapping counts
// in RSS as in a loader's worker that maps a data set, and takes no memory. A
// process that touches memory of its own is no faster than the kernel clears
// pages, which on small machines is well below 4 GiB/s, and four of its GiB are
// not available beside other work.
//
// It says "filled PID", and "grown NS" with the time that the growth took.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { step = 2 << 20, part = 256 << 10 };
static int fd;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

// more makes the process greater by one part.
static void more(void) {
	static char *at;
	static size_t left;
	if (!left) {
		at = mmap(0, step, PROT_READ, MAP_SHARED, fd, 0);
		left = step;
		if (at == MAP_FAILED) {
			perror("cannot map");
			exit(1);
		}
	}
	for (size_t i = 0; i < part; i += 4096)
		*(volatile char *)(at + i);
	at += part;
	left -= part;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	size_t fill = strtoull(argv[1], 0, 10) << 20, burst = strtoull(argv[3], 0, 10) << 20;
	double rate = strtod(argv[2], 0) * (1 << 20);
	char c;
	fd = memfd_create("grow", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, step)) {
		perror("cannot begin");
		return 1;
	}
	for (size_t done = 0; done < fill; done += part)
		more();
	printf("filled %d\n", (int)getpid());
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;

	double began = now(), due = began;
	for (size_t done = 0; done < burst; done += part) {
		double late = now() - due;
		if (late < 0)
			usleep(-late * 1e6);
		else if (late > 0.002)
			due += late; // a stop of our own is not made up for by a faster burst
		more();
		due += part / rate;
	}
	printf("grown %.0f\n", (now() - began) * 1e9);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
