#define _GNU_SOURCE
#include "hold.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

// What the holder and a watcher need beside the command. The Go runtime ends
// the process, with a long trace, when it cannot get what it asks for; the
// command, which is content with less, would never start.
enum { ROOM_FILES = 20, ROOM_TASKS = 28 };
static const size_t room_address = (size_t)1400 << 20, room_data = (size_t)192 << 20;

// Both map this much in all, nearly all of it reserved by the Go runtime and
// never touched. Where Slurm sums virtual sizes it counts as the job's own, so
// it must be little beside what the job may have.
static const rlim_t room_summed = (rlim_t)64 << 30;

// summed says whether Slurm's VSizeFactor is set: slurmstepd then kills on the
// sum of virtual sizes, and gives each process its limit, which is so many
// percent of RLIMIT_RSS, as RLIMIT_AS.
static int summed(void) {
	struct rlimit as, rss;
	if (getenv("SLURM_JOB_ID") == NULL) return 0;
	if (getrlimit(RLIMIT_AS, &as) < 0 || getrlimit(RLIMIT_RSS, &rss) < 0) return 0;
	if (as.rlim_cur >= room_summed || rss.rlim_cur == RLIM_INFINITY || rss.rlim_cur < 100) return 0;
	rlim_t percent = rss.rlim_cur / 100, rest = as.rlim_cur % percent;
	return as.rlim_cur >= percent && (rest < 4096 || percent - rest < 4096);
}

static int limited(int resource) {
	struct rlimit r;
	return getrlimit(resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY;
}

static int fits(size_t size, int prot) {
	void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return 0;
	munmap(p, size);
	return 1;
}

static int files(void) {
	struct rlimit given, most;
	int fd[ROOM_FILES], n = 0;
	if (getrlimit(RLIMIT_NOFILE, &given) < 0) return 1;
	most = given;
	most.rlim_cur = given.rlim_max; // as the runtime will have it
	setrlimit(RLIMIT_NOFILE, &most);
	while (n < ROOM_FILES && (fd[n] = n == 0 ? open("/", O_PATH | O_CLOEXEC) : fcntl(fd[0], F_DUPFD_CLOEXEC, 0)) >= 0) n++;
	int all = n == ROOM_FILES;
	while (n > 0) close(fd[--n]);
	setrlimit(RLIMIT_NOFILE, &given);
	return all;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *unused) {
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return unused;
}

// tasks starts so many threads for a moment: RLIMIT_NPROC counts all of the user's,
// and a cgroup's pids.max may count more.
static int tasks(int most) {
	pthread_t t[ROOM_TASKS];
	pthread_attr_t small;
	int n = 0;
	if (pthread_attr_init(&small) != 0) return 1;
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_mutex_lock(&gate);
	while (n < most && pthread_create(&t[n], &small, wait_at_gate, NULL) == 0) n++;
	pthread_mutex_unlock(&gate);
	int all = n == most;
	while (n > 0) pthread_join(t[--n], NULL);
	pthread_attr_destroy(&small);
	return all;
}

// hold_address ends the process, with the reason, where Go's runtime would with
// a trace.
void hold_address(void) {
	if (!limited(RLIMIT_AS) || fits(room_address, PROT_NONE)) return;
	dprintf(2, "error: too little address space is left (ulimit -v): %zu MiB are needed\n"
			   "hint: ulimit -v unlimited, where that is allowed\n", room_address >> 20);
	_exit(1);
}

#define TOO_LITTLE "there is no room beside it, too little is left of: "

// other_pids says that children would be in another PID namespace, where no thread can be made.
static int other_pids(void) {
	char own[64], next[64];
	ssize_t n = readlink("/proc/self/ns/pid", own, sizeof own), m = readlink("/proc/self/ns/pid_for_children", next, sizeof next);
	if (n > 0 && m < 0) return faccessat(AT_FDCWD, "/proc/self/ns/pid_for_children", F_OK, AT_SYMLINK_NOFOLLOW) == 0; // it has no process yet
	return n > 0 && (m != n || memcmp(own, next, (size_t)n) != 0);
}

const char *hold_missing(void) {
	if (other_pids()) return "its children would be in another PID namespace (unshare -p)";
	const char *refused = hold_refused(0); // first: what follows makes threads
	if (refused != NULL) return refused;
	if (!files()) return TOO_LITTLE "open files (ulimit -n)";
	if (!fits(4096, PROT_READ | PROT_WRITE)) return TOO_LITTLE "mappings (mmap fails)";
	if (limited(RLIMIT_AS) && !fits(room_address, PROT_NONE)) return TOO_LITTLE "address space (ulimit -v)";
	if (summed()) return TOO_LITTLE "virtual memory, which Slurm sums (VSizeFactor)";
	if (limited(RLIMIT_DATA) && !fits(room_data, PROT_READ | PROT_WRITE)) return TOO_LITTLE "data (ulimit -d)";
	// A child would not have it (sched_fork in kernel/sched/core.c).
	int policy = sched_getscheduler(0);
	if (policy >= 0 && policy & SCHED_RESET_ON_FORK) return "children do not inherit its scheduling policy (chrt -R)";
	if (!hold_tasks(2 * ROOM_TASKS)) {
		if (!tasks(ROOM_TASKS)) return TOO_LITTLE "processes and threads (ulimit -u, pids.max)";
	} else if ((policy != SCHED_OTHER || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0) && !tasks(1)) {
		// seccomp and SCHED_DEADLINE are in none of the kernel's figures.
		return "no thread can be started";
	}
	return NULL;
}

_Noreturn void hold_in_place(char **command, int quiet, const char *why) {
	if (!quiet && !hold_early.site && getenv("RSSWARDEN_QUIET") == NULL) dprintf(2, "rsswarden: the command runs unwatched: %s\n", why);
	hold_as_bare();
	execvp(command[0], command);
	int err = errno;
	dprintf(2, "error: cannot start %s: %s\n", command[0], strerror(err));
	_exit(err == ENOENT || err == ENOTDIR ? 127 : 126);
}

// hold_room executes the command in place of this process where there is no
// room for us beside it. Go cannot: its runtime would not start.
void hold_room(char **argv) {
	const char *what = hold_missing();
	int quiet = 0;
	char **c = what == NULL ? NULL : hold_command(argv, &quiet);
	if (c != NULL) hold_in_place(c, quiet, what);
}
