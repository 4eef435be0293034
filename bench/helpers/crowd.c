// crowd N: a tree of N processes that sleep until standard input ends. Says
// "ready PID" once all are there. One that gets SIGUSR1 is busy from then on: every
// 7 s it takes 16 pages, or gives them back, so that looks each 10 s find it changed.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE, PERIOD = 7000 };

static volatile sig_atomic_t busy;

static void begin(int sig) {
	(void)sig;
	busy = 1;
}

// until_end sleeps until standard input ends.
static void until_end(void) {
	struct pollfd in = {0, POLLIN, 0};
	char *memory = NULL, c;
	int full = 0, wait = -1;
	for (;;) {
		if (busy && !memory) {
			memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (memory == MAP_FAILED)
				_exit(1);
			wait = getpid() % PERIOD; // not all at once
		}
		int n = poll(&in, 1, wait);
		if (n > 0 && read(0, &c, 1) <= 0)
			return;
		if (n != 0 || !memory)
			continue;
		for (int i = 0; !full && i < SIZE; i += PAGE)
			memory[i] = 1;
		if (full)
			madvise(memory, SIZE, MADV_DONTNEED);
		full = !full;
		wait = PERIOD;
	}
}

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	struct sigaction sa = {.sa_handler = begin};
	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGCHLD, SIG_IGN); // no child is waited for: none stays a zombie
	for (int i = 1; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("cannot fork");
			return 1;
		}
		if (pid == 0) {
			until_end();
			_exit(0);
		}
	}
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	until_end();
	return 0;
}
