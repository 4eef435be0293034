// statm PID: what a sum of RSS costs at the least: the statm of every process
// of the tree is opened once, and each reading is one pread a process and one
// number parsed. Nothing is discovered after the start, and nothing is checked.
//
// It answers each line "N PAUSE_US" on standard input by one line: the sum in
// bytes, and the ns that each of N readings took, PAUSE_US slept before each.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16384 };
static int fds[MOST], count;

static void gather(int pid) {
	char name[64];
	snprintf(name, sizeof name, "/proc/%d/statm", pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC), child;
	if (fd < 0 || count == MOST) {
		perror(name);
		exit(1);
	}
	fds[count++] = fd;
	snprintf(name, sizeof name, "/proc/%d/task/%d/children", pid, pid);
	FILE *f = fopen(name, "re");
	if (!f) {
		perror(name);
		exit(1);
	}
	while (fscanf(f, "%d", &child) == 1)
		gather(child);
	fclose(f);
}

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static unsigned long long sum(void) {
	unsigned long long pages = 0;
	char buf[128];
	for (int i = 0; i < count; i++) {
		ssize_t n = pread(fds[i], buf, sizeof buf - 1, 0);
		if (n <= 0)
			continue;
		buf[n] = 0;
		char *p = buf;
		while (*p && *p != ' ')
			p++;
		pages += strtoull(p, 0, 10);
	}
	return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
	static long long took[1 << 16];
	unsigned long long bytes = 0;
	int n;
	long pause;
	if (argc != 2)
		return 2;
	gather(atoi(argv[1]));
	while (scanf("%d %ld", &n, &pause) == 2 && n <= 1 << 16) {
		for (int i = 0; i < n; i++) {
			if (pause)
				usleep(pause);
			long long began = now();
			bytes = sum();
			took[i] = now() - began;
		}
		printf("%llu", bytes);
		for (int i = 0; i < n; i++)
			printf(" %lld", took[i]);
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
