#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static void restore_nofile(void) {
	struct rlimit r = {hold_early.nofile_soft, hold_early.nofile_hard};
	if (r.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &r);
}

// hold_dispositions sets every signal to its default, those in ignored to SIG_IGN.
void hold_dispositions(uint64_t ignored) {
	for (int s = 1; s <= 64; s++) {
		if (s == SIGKILL || s == SIGSTOP) continue;
		struct raw_action a = {0};
		a.handler = ignored & RAW_BIT(s) ? (void *)SIG_IGN : (void *)SIG_DFL;
		raw_sigaction(s, &a, NULL);
	}
}

// hold_as_bare gives the calling process back what the user gave us. Its last act
// is the mask: what was sent meanwhile is delivered as to a bare command.
void hold_as_bare(void) {
	hold_dispositions(hold_early.ignored);
	restore_nofile();
	for (int fd = 0; fd < 3; fd++)
		if (hold_early.closed & (1 << fd)) close(fd);
	if (hold_early.subreaper) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (hold_early.pdeathsig > 0) prctl(PR_SET_PDEATHSIG, hold_early.pdeathsig);
	raw_sigmask(SIG_SETMASK, &hold_early.blocked, NULL);
}

// try_file is execve, and /bin/sh for a script without a "#!" line.
static int try_file(struct hold_child *c, char *path, char **envp) {
	execve(path, c->argv, envp);
	if (errno == ENOEXEC && c->shell != NULL) {
		c->shell[1] = path;
		execve("/bin/sh", c->shell, envp);
	}
	return errno;
}

// try_all goes on after the errors after which glibc's execvp(3) does
// (posix/execvpe.c), and returns the one that it would.
static int try_all(struct hold_child *c, char **envp) {
	int err = ENOENT, refused = 0;
	for (char **path = c->paths; *path != NULL; path++) {
		switch (err = try_file(c, *path, envp)) {
		case EACCES:
			refused = 1;
			break;
		case ENOENT:
		case ESTALE:
		case ENOTDIR:
		case ENODEV:
		case ETIMEDOUT:
			break;
		default:
			return err;
		}
	}
	return refused ? EACCES : err;
}

// try_exec leaves our variables out where they make the environment too long.
static int try_exec(struct hold_child *c) {
	int err = try_all(c, c->envp);
	if (err != E2BIG || c->given == NULL) return err;
	c->left_out = 1;
	return try_all(c, c->given);
}

static void close_from_to(unsigned from, unsigned to) {
	if (from > to) return;
	if (syscall(SYS_close_range, from, to, 0) == 0) return;
	struct rlimit r;
	unsigned end = 65536;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < end) end = (unsigned)r.rlim_cur;
	for (unsigned fd = from; fd <= to && fd < end; fd++) close((int)fd);
}

// watcher_files: 0 the link, 1 /dev/null unless kept, 2 the user's stderr,
// above that only what is kept. A pipe of the user held open by us would hide
// the command's closing it from its reader.
static void watcher_files(struct hold_child *c) {
	int keep_stdout = 0;
	unsigned from = 3;
	dup2(c->link, 0);
	for (int i = 0; i < c->nkeep; i++)
		if (c->keep[i] == 1) keep_stdout = 1;
	if (!keep_stdout) dup2(c->null, 1);
	if (hold_early.closed & 4) dup2(c->null, 2);
	for (int i = 0; i < c->nkeep; i++) {
		int fd = c->keep[i];
		if (fd < 3) continue;
		if ((unsigned)fd > from) close_from_to(from, (unsigned)fd - 1);
		fcntl(fd, F_SETFD, 0);
		from = (unsigned)fd + 1;
	}
	close_from_to(from, ~0U);
}

// child runs on memory it shares with the suspended parent thread: system
// calls only.
static int child(void *p) {
	struct hold_child *c = p;
	if (c->watcher) {
		hold_dispositions(0);
		restore_nofile();
		watcher_files(c);
		// Under umask 777 the user's ~/.local would be made without a right on it.
		umask(umask(0) & ~(mode_t)S_IRWXU);
	} else {
		hold_as_bare();
	}
	c->exec_errno = try_exec(c);
	syscall(SYS_exit_group, 127);
	return 127;
}

pid_t hold_spawn(struct hold_child *c) {
	enum { STACK = 64 << 10 };
	uint64_t all = ~UINT64_C(0), old;
	char *stack = malloc(STACK);
	if (stack == NULL) return -ENOMEM;
	c->exec_errno = c->left_out = 0;
	c->pending = 0;
	// No handler of ours may run in the child, which shares our memory.
	raw_sigmask(SIG_SETMASK, &all, &old);
	syscall(SYS_rt_sigpending, &c->pending, sizeof c->pending);
	c->time = hold_now();
	pid_t pid = clone(child, (char *)((uintptr_t)(stack + STACK) & ~(uintptr_t)63), CLONE_VM | CLONE_VFORK | SIGCHLD, c);
	int err = errno;
	raw_sigmask(SIG_SETMASK, &old, NULL);
	free(stack);
	if (pid < 0) return -err;
	if (c->exec_errno != 0) {
		siginfo_t si;
		while (waitid(P_PID, (id_t)pid, &si, WEXITED) < 0 && errno == EINTR) {
		}
	}
	return pid;
}

int hold_exec(struct hold_child *c) {
	prctl(PR_SET_CHILD_SUBREAPER, hold_early.subreaper);
	hold_as_bare();
	return try_exec(c);
}

// oom_first has the kernel take this process first where memory runs out.
static void oom_first(void) {
	int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (score >= 0 && write(score, "1000", 4) < 0) errno = 0;
	if (score >= 0) close(score);
}

// hold_fork_oom_first is fork(2) of a process that the kernel takes first from its first page on:
// each page that it writes is copied, and where there is none left the kernel would take the
// watcher, or the training, before the fork could ask for anything. So a child that shares this
// process' memory asks, and the fork, which has this process as its parent, inherits that. A
// child of vfork(2) is never taken, and does not ask for its parent (mm/oom_kill.c: in_vfork,
// fs/proc/base.c: __set_oom_adj). Where that is not to be had it is fork(2).
pid_t hold_fork_oom_first(void) {
#ifdef __GLIBC__
	uint64_t all = ~UINT64_C(0), old;
	int *tid = NULL; // where glibc keeps the number of the thread, which its fork(2) renews
	volatile pid_t forked = -1;
	if (prctl(PR_GET_TID_ADDRESS, &tid) == 0 && tid != NULL) {
		raw_sigmask(SIG_SETMASK, &all, &old); // no handler may run in what shares our memory
		pid_t pid = vfork();
		if (pid == 0) {
			oom_first();
			// The last two are in this order or the other, by architecture.
			forked = (pid_t)syscall(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, NULL, tid, tid);
			if (forked != 0) _exit(0);
			raw_sigmask(SIG_SETMASK, &old, NULL);
			return 0;
		}
		while (pid > 0 && wait4(pid, NULL, 0, NULL) < 0 && errno == EINTR) {
		}
		raw_sigmask(SIG_SETMASK, &old, NULL);
		if (forked > 0) return forked;
	}
#endif
	pid_t pid = fork();
	if (pid == 0) oom_first();
	return pid;
}
