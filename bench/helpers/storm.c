// storm RATE SECONDS: a fork storm. RATE children a second live for 3 ms each.
// Halfway, one child forks a grandchild that maps 256 MiB, and ends after 2 s;
// the grandchild stays, an orphan, until standard input ends.
//
// It says "begin PID", and "end FORKS" with the number of children started.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void until_end(void) {
	char c;
	while (read(0, &c, 1) > 0)
		;
}

// The same 2 MiB many times: they count in RSS and take no memory.
static void hold(void) {
	size_t step = 2 << 20;
	int fd = memfd_create("hold", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, step))
		_exit(1);
	for (int i = 0; i < 128; i++)
		if (mmap(0, step, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0) == MAP_FAILED)
			_exit(1);
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	double rate = strtod(argv[1], 0), seconds = strtod(argv[2], 0);
	long forks = 0, failed = 0;
	int planted = 0;
	signal(SIGCHLD, SIG_IGN);
	printf("begin %d\n", (int)getpid());
	fflush(stdout);
	double began = now();
	for (double t; (t = now() - began) < seconds;) {
		if (!planted && t > seconds / 2) {
			planted = 1;
			if (fork() == 0) {
				if (fork() == 0) {
					hold();
					until_end();
					_exit(0);
				}
				usleep(2000000);
				_exit(0);
			}
		}
		// What could not be forked in time is not made up for: no burst follows
		// where the machine had other work.
		long due = (long)(t * rate) - forks - failed;
		if (due > rate / 20) {
			failed += due - (long)(rate / 20);
			due = (long)(rate / 20);
		}
		for (; due > 0; due--) {
			pid_t pid = fork();
			if (pid == 0) {
				usleep(3000);
				_exit(0);
			}
			if (pid < 0)
				failed++;
			else
				forks++;
		}
		usleep(1000);
	}
	printf("end %ld\n", forks);
	fflush(stdout);
	until_end();
	return 0;
}
