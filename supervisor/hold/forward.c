#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

// What a parked holder does with signals. The rules are those of judge in signals.go; here are
// the plain cases, so that a signal need not wait for the Go runtime.

static struct hold_parked *const p = &hold_parked;

enum { SECOND_WAIT = 200000 /* ns, secondWait */, PARENTS = 1024 };

// Job control has a state of its own, and is not judged here. Of the unwitnessed see witness.go.
static const uint64_t job_control = RAW_BIT(SIGTSTP) | RAW_BIT(SIGTTIN) | RAW_BIT(SIGTTOU) | RAW_BIT(SIGCONT);
static const uint64_t unwitnessed = HOLD_FAULTS | RAW_BIT(SIGPROF) | RAW_BIT(32) | RAW_BIT(33);

// descends says that a process, whose parent was this, is the command or below it.
static int descends(pid_t pid, pid_t parent) {
	for (int n = 0; n < PARENTS; n++) {
		if (pid == p->pid) return 1;
		if (pid <= 1 || pid == p->holder || pid == p->watcher || parent == 0) return 0;
		if (parent == p->holder) return 1;
		pid = parent;
		parent = hold_parent(parent);
	}
	return 0;
}

// seen says whether the watcher has a signal pending, -1 where it cannot testify.
static int seen(int sig) {
	static char buf[16 << 10];
	char path[32];
	if (p->watcher <= 0 || getpgid(p->watcher) != getpgrp()) return -1;
	snprintf(path, sizeof path, "/proc/%d/status", p->watcher);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return -1;
	ssize_t n = read(fd, buf, sizeof buf - 1);
	close(fd);
	if (n <= 0) return -1;
	buf[n] = 0;
	char *state = strstr(buf, "\nState:\t"), *pending = strstr(buf, "\nShdPnd:\t");
	if (state == NULL || pending == NULL || strchr("TtZX", state[8]) != NULL) return -1;
	return (strtoull(pending + 9, NULL, 16) & RAW_BIT(sig)) != 0;
}

// Of a signal that the command got with its group we may have two, as from timeout(1): the
// second then waits while the first is judged.
static int second;
static pid_t second_from;

static int unasked; // signals were passed on without asking the watcher: what it has may be of these

// settled says whether it could judge a signal that the watcher has pending too: the command got
// it with its group. The watcher's copy has served as evidence, and is to be taken.
static int settled(int sig) { return getpgid(p->pid) == getpgrp() && hold_drain(RAW_BIT(sig)); }

// pass forwards one signal if the command has not got it, and says whether it could judge that.
static int pass(const struct signalfd_siginfo *si, pid_t parent) {
	pid_t from = (pid_t)si->ssi_pid, to = p->pid;
	int sig = (int)si->ssi_signo, merges = si->ssi_code == SI_USER && sig < 32, had = 0;
	uint64_t own = 0;
	int again = sig == second && merges && from == second_from;
	if (sig == second) second = 0;
	if (si->ssi_code > 0) return sig == SIGCHLD; // about a child
	if (again) return 1;
	if (sig < 1 || sig > 64 || (job_control | p->early | p->draining) & RAW_BIT(sig)) return 0;
	if (from != 0 && (from == p->holder || from == p->watcher)) return 0;
	if (descends(from, parent)) to = p->parent; // it was meant for the command's parent
	if (merges) {                               // timeout(1) sends it to us, then to the group
		uint64_t now = hold_now(), until = p->read + SECOND_WAIT;
		if (now < until) nanosleep(&(struct timespec){0, (long)(until - now)}, NULL);
		syscall(SYS_rt_sigpending, &own, sizeof own);
	}
	if (unwitnessed & RAW_BIT(sig) ? to != p->pid : (had = seen(sig)) < 0) return 0;
	if (had > 0) {
		if (unasked || !settled(sig)) return 0;
		if (own & RAW_BIT(sig)) second = sig, second_from = from;
		to = 0;
	} else if (to == p->pid) {
		hold_forward(p->pidfd, p->pid, sig, si->ssi_code, from, si->ssi_uid, si->ssi_ptr);
	} else if (to > 1 && to == getppid()) {
		hold_forward(-1, to, sig, si->ssi_code, from, si->ssi_uid, si->ssi_ptr);
	}
	struct hold_message m = {.kind = HOLD_SIGNAL, .a = sig, .b = to == p->pid, .c = from};
	if (p->link >= 0) send(p->link, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return 1;
}

// hold_pass forwards what was read, and says whether the Go holder has to judge the rest, which
// it leaves in the batch.
int hold_pass(void) {
	struct hold_batch *b = &p->batch;
	int n = b->size > 0 ? b->size / (int)sizeof b->info[0] : 0, i = 0;
	while (i < n && pass(&b->info[i], b->parent[i])) i++;
	memmove(b->info, b->info + i, (size_t)(n - i) * sizeof b->info[0]);
	memmove(b->parent, b->parent + i, (size_t)(n - i) * sizeof b->parent[0]);
	b->size = (n - i) * (int)sizeof b->info[0];
	return n > i;
}

// hold_pass_all forwards the rest without asking the watcher, as lastResort does: there is no
// room to wake.
void hold_pass_all(void) {
	const uint64_t terminal = RAW_BIT(SIGINT) | RAW_BIT(SIGQUIT) | RAW_BIT(SIGTSTP) | RAW_BIT(SIGTTIN) | RAW_BIT(SIGTTOU) | RAW_BIT(SIGWINCH);
	const uint64_t own = RAW_BIT(SIGXCPU) | RAW_BIT(SIGXFSZ) | RAW_BIT(SIGVTALRM) | RAW_BIT(SIGPROF) | RAW_BIT(SIGCHLD);
	second = 0, unasked = 1;
	for (int i = 0; i < p->batch.size / (int)sizeof p->batch.info[0]; i++) {
		struct signalfd_siginfo *si = &p->batch.info[i];
		pid_t from = (pid_t)si->ssi_pid;
		if (si->ssi_code > 0 && (terminal | own) & RAW_BIT(si->ssi_signo)) continue;
		if (from != 0 && (from == p->holder || from == p->watcher || from == p->pid)) continue;
		hold_forward(p->pidfd, p->pid, (int)si->ssi_signo, si->ssi_code, from, si->ssi_uid, si->ssi_ptr);
	}
	p->batch.size = 0;
	siginfo_t si;
	memset(&si, 0, sizeof si);
	if (waitid(P_PID, (id_t)p->pid, &si, WSTOPPED | WNOWAIT | WNOHANG) == 0 && si.si_pid == p->pid && si.si_code == CLD_STOPPED &&
		(si.si_status == SIGTSTP || si.si_status == SIGTTIN || si.si_status == SIGTTOU))
		hold_stop(si.si_status, p->pid);
}
