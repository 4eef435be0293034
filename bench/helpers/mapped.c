// mapped FILE: maps it read-only and shared. A thread reads pages of it at
// random; the main one does as the lines of its input say, and answers each.
//
//	touch   touch every page
//	count   pages that the thread has read so far
//	drop    have the range dropped from here, by madvise; says for how long
//
// It ends with its input.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const volatile char *map;
static size_t pages;
static volatile uint64_t count;

static void *reader(void *unused) {
	uint64_t x = 88172645463325252u;
	for (;;) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		const volatile char *p = map + x % pages * 4096;
		for (int i = 0; i < 4096; i += 64) (void)p[i];
		count++;
	}
	return unused;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
	struct stat st;
	if (argc != 2) return 2;
	int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) return 1;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) return 1;
	pages = (size_t)st.st_size / 4096;
	pthread_t t;
	if (pthread_create(&t, NULL, reader, NULL) != 0) return 1;
	// From poll, unlike from read, a thread may come back without a cause.
	char line[16];
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready\n");
	for (;;) {
		fd_set in;
		FD_ZERO(&in);
		FD_SET(0, &in);
		if (select(1, &in, NULL, NULL, NULL) != 1) continue;
		if (fgets(line, sizeof line, stdin) == NULL) return 0;
		if (strcmp(line, "touch\n") == 0) {
			for (size_t i = 0; i < pages; i++) (void)map[i * 4096];
			printf("0\n");
		} else if (strcmp(line, "count\n") == 0) {
			printf("%llu\n", (unsigned long long)count);
		} else if (strcmp(line, "drop\n") == 0) {
			double began = now();
			if (madvise((void *)(uintptr_t)map, pages * 4096, MADV_DONTNEED) < 0) return 1;
			printf("%.9f\n", now() - began);
		}
	}
}
