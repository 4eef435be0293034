// block COUNTERS DATA KIND...
//
// Each KIND of blocking call is made again and again by a thread of its own,
// by the main thread where there is only one. Timed calls are to last MS and
// to say so. The others are to return not at all, until the test sets WAKE:
// then a child process gives each of them its cause, and they are to return
// once more, with the result that belongs to it.
#include "stand.h"
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { WAKE, WORD, MAIN, FIRST = 8 };
// The words of a kind, from FIRST + 8 * its place on the command line.
enum { TID, RETURNS, EINTRS, BAD, LAST_BAD, EARLY, LATEST, WOKEN };

#define MS 40
#define R(x) ({ long r_ = (x); r_ < 0 ? -errno : r_; })

struct kind {
	const char *name;
	long (*call)(void);
	long result; // of a timed call whose time is over, else of one that was woken
	int timed;
};

static int pipe_read[2], pipe_poll[2], pipe_write[2], pair[2], quiet[2], event_read, event_poll, ep, ep_quiet;
static int listener, sem, msg;
static int lock_held;
static const char *lock_path;
static struct sockaddr_un address;
static socklen_t address_len;
static pid_t child;
static uint32_t word;
static const struct timespec for_ms = {0, MS * 1000000};

static struct timespec in_ms(void) {
	uint64_t t = now() + MS * 1000000;
	return (struct timespec){t / 1000000000, t % 1000000000};
}

static sigset_t only(int sig) {
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, sig);
	return s;
}

static long k_futex(void) { return R(syscall(SYS_futex, &counters[WORD], FUTEX_WAIT, 0, 0, 0, 0)); }
static long k_futex_timed(void) { return R(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &for_ms, 0, 0)); }
static long k_futex_abs(void) {
	struct timespec t = in_ms();
	return R(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &t, 0, ~0));
}
static long k_read_pipe(void) { char c; return R(read(pipe_read[0], &c, 1)); }
static long k_poll(void) { struct pollfd p = {pipe_poll[0], POLLIN, 0}; return R(syscall(SYS_poll, &p, 1, -1)); }
static long k_poll_timed(void) { struct pollfd p = {quiet[0], POLLIN, 0}; return R(syscall(SYS_poll, &p, 1, MS)); }
static long k_ppoll_timed(void) {
	struct pollfd p = {quiet[0], POLLIN, 0};
	sigset_t s = only(SIGUSR1);
	return R(ppoll(&p, 1, &for_ms, &s));
}
static long k_select_timed(void) {
	fd_set f;
	struct timeval t = {0, MS * 1000};
	FD_ZERO(&f);
	FD_SET(quiet[0], &f);
	return R(syscall(SYS_select, quiet[0] + 1, &f, 0, 0, &t));
}
static long k_pselect_timed(void) {
	fd_set f;
	sigset_t s = only(SIGUSR1);
	FD_ZERO(&f);
	FD_SET(quiet[0], &f);
	return R(pselect(quiet[0] + 1, &f, 0, 0, &for_ms, &s));
}
static long k_nanosleep(void) { return R(syscall(SYS_nanosleep, &for_ms, 0)); }
static long k_clock_rel(void) { return R(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &for_ms, 0)); }
static long k_clock_abs(void) {
	struct timespec t = in_ms();
	return R(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0));
}
static long k_epoll(void) { struct epoll_event e; return R(syscall(SYS_epoll_wait, ep, &e, 1, -1)); }
static long k_epoll_timed(void) { struct epoll_event e; return R(syscall(SYS_epoll_wait, ep_quiet, &e, 1, MS)); }
static long k_epoll_pwait(void) {
	struct epoll_event e;
	sigset_t s = only(SIGUSR1);
	return R(epoll_pwait(ep, &e, 1, -1, &s));
}
static long k_pause(void) { return R(syscall(SYS_pause)); }
static long k_sigsuspend(void) { sigset_t s = only(SIGUSR1); return R(sigsuspend(&s)); }
static long k_sigtimedwait(void) { sigset_t s = only(SIGUSR2); siginfo_t i; return R(sigtimedwait(&s, &i, &for_ms)); }
static long k_sigwaitinfo(void) { sigset_t s = only(SIGRTMIN); siginfo_t i; return R(sigwaitinfo(&s, &i)); }
static long k_recv(void) { char c; return R(recv(pair[0], &c, 1, 0)); }
static long k_recv_timed(void) { char c; return R(recv(quiet[1], &c, 1, 0)); }
static long k_waitpid(void) { int s; return R(waitpid(child, &s, 0)) == child; }
static long k_semop(void) { struct sembuf b = {0, -1, 0}; return R(semop(sem, &b, 1)); }
static long k_semtimedop(void) { struct sembuf b = {1, -1, 0}; return R(semtimedop(sem, &b, 1, &for_ms)); }
static long k_msgrcv(void) { struct { long type; char text[8]; } m; return R(msgrcv(msg, &m, 8, 0, 0)); }
static long k_flock(void) {
	static int fd = -1;
	if (fd < 0)
		fd = open(lock_path, O_RDWR);
	return R(flock(fd, LOCK_EX));
}
static long k_eventfd(void) { uint64_t v; return R(read(event_read, &v, 8)); }
static long k_accept(void) { long r = R(accept(listener, 0, 0)); return r < 0 ? r : 1; }
static long k_write_pipe(void) { char b[4096]; return R(write(pipe_write[1], memset(b, 0, 4096), 4096)); }
static long k_spin(void) { for (uint64_t end = now() + MS * 1000000; now() < end;); return 0; }
static long k_getppid(void) {
	pid_t p = getppid();
	for (uint64_t end = now() + MS * 1000000; now() < end;)
		if (syscall(SYS_getppid) != p)
			return -9999;
	return 0;
}

static const struct kind kinds[] = {
	{"futex", k_futex, 0, 0}, {"futex_timed", k_futex_timed, -ETIMEDOUT, 1}, {"futex_abs", k_futex_abs, -ETIMEDOUT, 1},
	{"read_pipe", k_read_pipe, 1, 0}, {"poll", k_poll, 1, 0}, {"poll_timed", k_poll_timed, 0, 1},
	{"ppoll_timed", k_ppoll_timed, 0, 1}, {"select_timed", k_select_timed, 0, 1}, {"pselect_timed", k_pselect_timed, 0, 1},
	{"nanosleep", k_nanosleep, 0, 1}, {"clock_nanosleep_rel", k_clock_rel, 0, 1}, {"clock_nanosleep_abs", k_clock_abs, 0, 1},
	{"epoll_wait", k_epoll, 1, 0}, {"epoll_wait_timed", k_epoll_timed, 0, 1}, {"epoll_pwait", k_epoll_pwait, 1, 0},
	{"pause", k_pause, -EINTR, 0}, {"sigsuspend", k_sigsuspend, -EINTR, 0}, {"sigtimedwait", k_sigtimedwait, -EAGAIN, 1},
	{"sigwaitinfo", k_sigwaitinfo, 34, 0}, {"recv", k_recv, 1, 0}, {"recv_timed", k_recv_timed, -EAGAIN, 1},
	{"waitpid", k_waitpid, 1, 0}, {"semop", k_semop, 0, 0}, {"semtimedop", k_semtimedop, -EAGAIN, 1},
	{"msgrcv", k_msgrcv, 1, 0}, {"flock", k_flock, 0, 0}, {"eventfd", k_eventfd, 8, 0}, {"accept", k_accept, 1, 0},
	{"write_pipe", k_write_pipe, 4096, 0}, {"spin", k_spin, 0, 1}, {"getppid", k_getppid, 0, 1},
};

static const struct kind *kind_of[64];
static int kinds_here;

static void onhup(int sig) { (void)sig; }

static void *calls(void *arg) {
	long at = (long)arg;
	const struct kind *k = kind_of[at];
	volatile uint64_t *mine = &counters[FIRST + 8 * at];
	// SO_RCVTIMEO counts the kernel's ticks, of which a busy virtual machine
	// makes up for some at once.
	const uint64_t slack = k->call == k_recv_timed ? 12000000 : 1000000;
	mine[TID] = syscall(SYS_gettid);
	for (;;) {
		uint64_t begin = now();
		long r = k->call();
		uint64_t took = now() - begin;
		mine[RETURNS]++;
		if (!k->timed && counters[WAKE] && r == k->result) {
			mine[WOKEN]++;
			for (;;)
				pause();
		}
		if (r == -EINTR) {
			mine[EINTRS]++;
		} else if (!k->timed || r != k->result) {
			mine[BAD]++;
			mine[LAST_BAD] = r;
		} else if (took < MS * 1000000 - slack) {
			mine[EARLY]++;
		} else if (took > MS * 1000000 && took - MS * 1000000 > mine[LATEST]) {
			mine[LATEST] = took - MS * 1000000;
		}
	}
	return 0;
}

// wake gives every call that is not timed its cause.
static void wake(pid_t parent) {
	struct { long type; char text[1]; } m = {1, {0}};
	struct sembuf up = {0, 1, 0};
	uint64_t one = 1;
	char page[4096] = {0};
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	counters[WORD] = 1;
	syscall(SYS_futex, &counters[WORD], FUTEX_WAKE, 1, 0, 0, 0);
	if (write(pipe_read[1], page, 1) != 1 || write(pipe_poll[1], page, 1) != 1 || write(pair[1], page, 1) != 1 ||
		write(event_read, &one, 8) != 8 || write(event_poll, &one, 8) != 8 || read(pipe_write[0], page, 4096) != 4096 ||
		semop(sem, &up, 1) < 0 || msgsnd(msg, &m, 1, 0) < 0 || flock(lock_held, LOCK_UN) < 0 || kill(child, SIGKILL) < 0 ||
		connect(s, (void *)&address, address_len) < 0)
		fail("wake");
	for (int i = 0; i < kinds_here; i++) {
		pid_t tid = counters[FIRST + 8 * i + TID];
		if (kind_of[i]->call == k_sigwaitinfo)
			syscall(SYS_tgkill, parent, tid, SIGRTMIN);
		else if (kind_of[i]->call == k_pause || kind_of[i]->call == k_sigsuspend)
			syscall(SYS_tgkill, parent, tid, SIGHUP);
	}
}

// waker is the child process; it outlives its parent to clear the table of
// System V objects.
static void waker(pid_t parent) {
	setpgid(0, 0);
	close(1);
	int woke = 0;
	while (getppid() == parent) {
		if (counters[WAKE] && !woke++)
			wake(parent);
		usleep(2000);
	}
	semctl(sem, 0, IPC_RMID);
	msgctl(msg, IPC_RMID, 0);
	_exit(0);
}

static void causes(const char *path) {
	struct timeval t = {0, MS * 1000};
	struct epoll_event e = {EPOLLIN, {0}};
	char page[4096] = {0};
	address_len = sizeof address;
	address.sun_family = AF_UNIX;
	lock_path = path;
	if (pipe(pipe_read) < 0 || pipe(pipe_poll) < 0 || pipe(pipe_write) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM, 0, quiet) < 0 || setsockopt(quiet[1], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) < 0 ||
		(event_read = eventfd(0, 0)) < 0 || (event_poll = eventfd(0, 0)) < 0 || (ep = epoll_create1(0)) < 0 ||
		(ep_quiet = epoll_create1(0)) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, event_poll, &e) < 0 ||
		(sem = semget(IPC_PRIVATE, 2, 0600)) < 0 || (msg = msgget(IPC_PRIVATE, 0600)) < 0 ||
		(lock_held = open(path, O_RDWR)) < 0 || flock(lock_held, LOCK_EX) < 0 ||
		(listener = socket(AF_UNIX, SOCK_STREAM, 0)) < 0 || bind(listener, (void *)&address, sizeof(sa_family_t)) < 0 ||
		listen(listener, 1) < 0 || getsockname(listener, (void *)&address, &address_len) < 0 ||
		fcntl(pipe_write[1], F_SETPIPE_SZ, 4096) < 0 || write(pipe_write[1], page, 4096) != 4096)
		fail("causes");
}

int main(int argc, char **argv) {
	if (argc < 4)
		return 2;
	stand(argv[1]);
	causes(argv[1]);
	for (int i = 3; i < argc; i++) {
		for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++)
			if (!strcmp(argv[i], kinds[j].name))
				kind_of[kinds_here] = &kinds[j];
		if (!kind_of[kinds_here++]) {
			fprintf(stderr, "%s: no such kind\n", argv[i]);
			return 2;
		}
	}
	pid_t parent = getpid();
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	pid_t w = fork();
	if (w == 0)
		waker(parent);
	if (child < 0 || w < 0)
		fail("fork");
	setpgid(w, w); // here as well, so that nothing ends our group before
	sigset_t s = only(SIGUSR1);
	sigaddset(&s, SIGUSR2);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, 0);
	struct sigaction sa = {.sa_handler = onhup};
	sigaction(SIGHUP, &sa, 0);
	map_data(argv[2]);
	if (kinds_here > 1)
		for (long i = 0; i < kinds_here; i++)
			thread(calls, (void *)i);
	ready();
	if (kinds_here == 1)
		calls(0);
	// The main thread's own call does not lend it: one of the others is to.
	int never[2];
	char c;
	if (pipe(never) < 0)
		fail("pipe");
	while (read(never[0], &c, 1) != -2)
		count(MAIN, 1);
}
