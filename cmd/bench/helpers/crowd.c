// crowd N: a tree of N processes that sleep until standard input ends. Says
// "ready PID" once all are there.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	char c;
	signal(SIGCHLD, SIG_IGN); // nobody is waited for: none stays a zombie
	for (int i = 1; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("cannot fork");
			return 1;
		}
		if (pid == 0) {
			while (read(0, &c, 1) > 0)
				;
			_exit(0);
		}
	}
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
