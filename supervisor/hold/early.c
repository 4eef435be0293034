#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#include <pthread.h>
#endif
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct hold_early hold_early;

#ifndef __GLIBC__
// Only glibc hands argc and argv to constructors.
static int asked_to_run(void) {
	char buf[4096];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0) return 0;
	ssize_t n = read(fd, buf, sizeof buf - 1);
	close(fd);
	if (n <= 0) return 0;
	buf[n] = 0;
	size_t first = strlen(buf) + 1;
	return first < (size_t)n && strcmp(buf + first, "run") == 0;
}
#endif

#ifdef __GLIBC__
// hide renames the variables that are meant for a Go program of the user's:
// GOMEMLIMIT=1G would steer this runtime, GODEBUG=gctrace=1 have it talk, a
// mistake in one end it. command names them back for the command.
static void hide(char **envp) {
	static const char *const names[] = {"GODEBUG=", "GOGC=", "GOMAXPROCS=", "GOMEMLIMIT=", "GOTRACEBACK="};
	for (; *envp != NULL; envp++)
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (strncmp(*envp, names[i], strlen(names[i])) == 0) **envp = HOLD_HIDDEN;
}
#endif

extern char __executable_start[], edata[]; // made by the linker

// small_mappings cuts our program's mapping in pieces. Linux 6.18 maps a folio of the page
// cache as a whole at one touch, up to 2 MiB, but not beyond a mapping's end
// (filemap_map_pages in mm/filemap.c); the OOM killer and Slurm count that as the job's.
// Mappings stay apart when their flags differ. This flag changes nothing else: without
// large pages for program text (CONFIG_READ_ONLY_THP_FOR_FS) it has no meaning there. A
// command that is started at once does not wait for it.
void hold_small_mappings(void) {
	enum { piece = 256 << 10 };
	char *end = edata - (uintptr_t)edata % 4096;
	for (char *p = __executable_start - (uintptr_t)__executable_start % piece; p < end; p += 2 * piece)
		madvise(p, piece, MADV_NOHUGEPAGE);
}

static struct span { uintptr_t from, to; } spans[32];
static int nspans;

// add notes the pages of our files that nothing is written to.
static int add(struct dl_phdr_info *i, size_t size, void *unused) {
	(void)size;
	(void)unused;
	for (int n = 0; n < i->dlpi_phnum && nspans < (int)(sizeof spans / sizeof *spans); n++) {
		const ElfW(Phdr) *h = &i->dlpi_phdr[n];
		if (h->p_type != PT_LOAD || h->p_flags & PF_W) continue;
		uintptr_t page = 4095, from = (i->dlpi_addr + h->p_vaddr) & ~page, to = (i->dlpi_addr + h->p_vaddr + h->p_memsz + page) & ~page;
		spans[nspans++] = (struct span){from, to};
	}
	return 0;
}

// hold_slim gives them back (see Options.Slim), last the code that does it.
void hold_slim(void) {
	if (nspans == 0) dl_iterate_phdr(add, NULL);
	for (int n = nspans - 1; n >= 0; n--) raw_call(SYS_madvise, (long)spans[n].from, (long)(spans[n].to - spans[n].from), MADV_DONTNEED, 0, 0, 0);
}

// ordinary takes a watcher out of the user's real-time policy (sched(7)): with as many of
// its threads as there are processors waiting for one that gets none, the Go runtime would spin
// for ever, and nobody else would run.
static void ordinary(void) {
	struct sched_param none = {0};
	long policy = syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;
	if (policy == SCHED_FIFO || policy == SCHED_RR) syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none);
}

// small_stacks bounds what glibc gives each thread of ours by RLIMIT_STACK, which is meant for
// the command: of a large one the address space may have no room for a thread, and the Go
// runtime ends without one.
static void small_stacks(void) {
	const size_t most = 8 << 20;
	pthread_attr_t attr;
	size_t size;
	if (pthread_getattr_default_np(&attr) != 0) return;
	if (pthread_attr_getstacksize(&attr, &size) == 0 && size > most && pthread_attr_setstacksize(&attr, most) == 0)
		pthread_setattr_default_np(&attr);
	pthread_attr_destroy(&attr);
}

// alone says that no library, as one of LD_PRELOAD, has started a thread: that would take the
// signals which a parked holder waits for.
static int alone(void) {
	struct stat s;
	return stat("/proc/self/task", &s) != 0 || s.st_nlink <= 3;
}

// hold_as_watcher makes this fork look like a watcher that was executed: pkill -f by the
// holder's arguments must not meet it. The Go program gets copies of them.
void hold_as_watcher(char **argv) {
	static const char name[] = "rss-watcher\0watch";
	static char *copy;
	char *begin = argv[0], *end = begin;
	ordinary();
	prctl(PR_SET_NAME, name);
	for (char **a = argv; *a == end; a++) end += strlen(*a) + 1;
	size_t size = (size_t)(end - begin);
	if (size < sizeof name || (copy = malloc(size)) == NULL) return;
	memcpy(copy, begin, size);
	for (char **a = argv; *a >= begin && *a < end; a++) *a = copy + (*a - begin);
	memset(begin, 0, size);
	memcpy(begin, name, sizeof name);
}

// Runs before the Go runtime, which would install its handlers, raise the
// soft RLIMIT_NOFILE and open /dev/null on closed standard descriptors.
__attribute__((constructor)) static void note(int argc, char **argv, char **envp) {
#ifdef __GLIBC__
	if (argc > 0) hold_task(argc, argv, envp);
	small_stacks();
	int run = argc > 1 && strcmp(argv[1], "run") == 0;
	if (!run) hold_small_mappings();
	if (argc < 2) return;
	// Each thread would reserve 64 MiB of address space or more, which
	// RLIMIT_AS counts, and Slurm where it sums virtual sizes.
	mallopt(M_ARENA_MAX, 1);
	if (!run) {
		if (strcmp(argv[0], "rss-watcher") == 0) ordinary();
		if (strcmp(argv[0], "rss-watcher") == 0 && strcmp(argv[1], "rest") == 0) hold_at_rest(argv);
		hold_address();
		return;
	}
#else
	(void)argc;
	(void)argv;
	(void)envp;
	hold_small_mappings();
	if (!asked_to_run()) return;
#endif
	struct hold_early *e = &hold_early;
	for (int s = 1; s <= 64; s++) {
		struct raw_action a;
		if (raw_sigaction(s, NULL, &a) == 0 && (void *)a.handler == (void *)SIG_IGN) e->ignored |= RAW_BIT(s);
	}
	// The five that a thread raises by a fault of its own cannot wait.
	uint64_t all = ~HOLD_FAULTS;
	raw_sigmask(SIG_BLOCK, &all, &e->blocked);
	syscall(SYS_rt_sigpending, &e->pending, sizeof e->pending);
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		e->nofile_soft = r.rlim_cur;
		e->nofile_hard = r.rlim_max;
	}
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) e->closed |= 1 << fd;
	prctl(PR_GET_PDEATHSIG, &e->pdeathsig);
	prctl(PR_GET_CHILD_SUBREAPER, &e->subreaper);
	e->active = 1;
#ifdef __GLIBC__
	e->site = hold_by_site(envp);
	hold_room(argv);
	raw_sigmask(SIG_BLOCK, &all, NULL); // glibc's first thread opens one of its own
	const char *park = getenv("RSSWARDEN_PARK");
	if ((park == NULL || strcmp(park, "0") != 0) && alone()) hold_park(argv, envp);
	if (hold_parked.role == 0) hold_small_mappings();
	hide(envp);
#endif
}
