// mappings N M [FILE]: starts N processes, each with a LOCAL_RANK of its own and
// M mappings of one page beside those of any program, of nothing, or of FILE. All
// sleep until standard input ends. Says "ready PID" once all have theirs; that is
// the PID of who started them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void rest(void) {
	char c;
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}

static int fail(const char *what) {
	perror(what);
	return 1;
}

// rank is the program of each of them; it tells by the descriptor that it is ready.
static int rank(int m, const char *file, int tell) {
	int fd = -1;
	if (*file != 0 && (fd = open(file, O_RDONLY)) < 0) return fail(file);
	for (int i = 0; i < m; i++) {
		// The kernel makes one of neighbours that are alike. Of a file, two that
		// begin at one offset are not.
		int prot = fd >= 0 || i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
		if (mmap(NULL, 4096, prot, MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0) == MAP_FAILED) return fail("cannot map");
	}
	if (fd >= 0) close(fd);
	if (write(tell, "", 1) != 1) return fail("cannot tell");
	close(tell);
	rest();
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 5) return rank(atoi(argv[2]), argv[3], atoi(argv[4]));
	if (argc < 3) return 2;
	int n = atoi(argv[1]), ready[2];
	char number[16], tell[16], c;
	signal(SIGCHLD, SIG_IGN); // no child is waited for: none stays a zombie
	if (pipe(ready) < 0) return fail("cannot make a pipe");
	snprintf(tell, sizeof tell, "%d", ready[1]);
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0) return fail("cannot fork");
		if (pid > 0) continue;
		close(ready[0]);
		snprintf(number, sizeof number, "%d", i);
		setenv("LOCAL_RANK", number, 1);
		execl(argv[0], argv[0], "rank", argv[2], argc > 3 ? argv[3] : "", tell, (char *)NULL);
		_exit(fail("cannot exec"));
	}
	close(ready[1]);
	for (int i = 0; i < n; i++)
		if (read(ready[0], &c, 1) != 1) return fail("one of them has ended");
	close(ready[0]);
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	rest();
}
