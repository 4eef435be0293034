// dies COUNTERS DATA HOW MICROSECONDS [parent]
//
// A process of several threads that ends in the way HOW after some time: by
// exit_group(7), by execve, by the end of its first thread and exit_group(7)
// later, or not at all (kill). With "parent" it is a child of this process,
// which says with what status it ended.
#include "stand.h"
#include <sys/wait.h>

static char **args;

static void *sleeper(void *kind) {
	for (;;)
		asleep(kind, -1);
	return 0;
}

static void *spinner(void *arg) {
	(void)arg;
	for (uint64_t state = 1;;)
		if (!page_right(dice(&state) % (data_len / PAGE)))
			_exit(99);
	return 0;
}

static void *actor(void *arg) {
	(void)arg;
	usleep(atol(args[4]));
	if (!strcmp(args[3], "exit"))
		_exit(7);
	if (!strcmp(args[3], "exec")) {
		execl("/proc/self/exe", "dies", args[1], args[2], "again", args[4], (char *)0);
		_exit(98);
	}
	if (!strcmp(args[3], "leader")) {
		while (!counters[0])
			usleep(50);
		usleep(2000);
		_exit(7);
	}
	for (;;)
		pause();
}

int main(int argc, char **argv) {
	if (argc < 5)
		return 2;
	args = argv;
	stand(argv[1]);
	if (argc > 5) {
		int status;
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child > 0) {
			while (waitpid(child, &status, 0) < 0)
				if (errno != EINTR)
					fail("waitpid");
			printf("status %d\n", status);
			fflush(stdout);
			return 0;
		}
	}
	map_data(argv[2]);
	if (!strcmp(argv[3], "again")) {
		// What execve left: the same file mapped elsewhere, one thread.
		asleep("nanosleep", 1 + atol(argv[4]) / 1000);
		return 9;
	}
	thread(spinner, 0);
	thread(sleeper, "futex");
	thread(sleeper, "poll");
	ready();
	thread(actor, 0);
	if (!strcmp(argv[3], "leader")) {
		asleep("nanosleep", 1);
		counters[0] = 1;
		syscall(SYS_exit, 0);
	}
	sleeper("epoll_wait");
}
