// The command that the tests run, bare and held: it shows what it inherits,
// counts the signals it gets, ends as its arguments say.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int out;

static void on_signal(int sig, siginfo_t *si, void *context) {
	(void)context;
	char line[64];
	int n = snprintf(line, sizeof line, "signal %d code %d value %d\n", sig, si->si_code, si->si_code == SI_QUEUE ? si->si_value.sival_int : 0);
	if (write(out, line, (size_t)n) < 0) _exit(99);
}

// count FILE: a line for each signal.
static int count(const char *file) {
	out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0) return 98;
	for (int s = 1; s <= 64; s++) {
		if (s == SIGKILL || s == SIGSTOP || s == 32 || s == 33) continue;
		struct sigaction sa;
		memset(&sa, 0, sizeof sa);
		sa.sa_sigaction = on_signal;
		sa.sa_flags = SA_SIGINFO | SA_RESTART;
		sigfillset(&sa.sa_mask);
		sigaction(s, &sa, NULL);
	}
	dprintf(out, "ready %d parent %d\n", getpid(), getppid());
	for (;;) pause();
}

static void on_continue(int sig) {
	(void)sig;
	if (write(1, "continued\n", 10) < 0) _exit(99);
}

// job: says when it is continued. It makes no children: a shell that does can
// miss ^Z between vfork and exec.
static int job(void) {
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_continue;
	sigaction(SIGCONT, &sa, NULL);
	if (write(1, "begun\n", 6) < 0) return 99;
	for (;;) pause();
}

// die N: by signal N, without a core.
static int die(int sig) {
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	unsigned long mask = 0;
	struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } dfl;
	memset(&dfl, 0, sizeof dfl);
	syscall(SYS_rt_sigaction, sig, &dfl, NULL, 8);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	kill(getpid(), sig);
	for (;;) pause();
}

static void copy_lines(FILE *f, const char *path, const char *const *keys) {
	char line[8192];
	FILE *in = fopen(path, "r");
	if (in == NULL) return;
	while (fgets(line, sizeof line, in) != NULL) {
		if (keys == NULL) {
			fprintf(f, "%s: %s", path, line);
			continue;
		}
		for (int i = 0; keys[i] != NULL; i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0) fputs(line, f);
	}
	fclose(in);
}

// twin FILE: all that a program inherits.
static int twin(const char *file, char **envp) {
	static const char *const status[] = {"SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Umask", "Cpus_allowed:", "Mems_allowed:",
		"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Speculation", "THP_enabled", "PPid", "Threads", "TracerPid", "NSpgid", "NSsid", NULL};
	// Descriptors first, before we open any.
	char text[65536];
	size_t n = 0;
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD), fl = fcntl(fd, F_GETFL);
		if (flags < 0) continue;
		char path[64], target[4096];
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t l = readlink(path, target, sizeof target - 1);
		target[l < 0 ? 0 : l] = 0;
		n += (size_t)snprintf(text + n, sizeof text - n, "fd %d -> %s fdflags %x flags %x\n", fd, target, flags, fl);
	}
	int o = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (o < 3) o = fcntl(o, F_DUPFD, 3);
	FILE *f = fdopen(o, "w");
	if (f == NULL) return 98;
	fwrite(text, 1, n, f);
	copy_lines(f, "/proc/self/status", status);
	copy_lines(f, "/proc/self/limits", NULL);
	copy_lines(f, "/proc/self/cgroup", NULL);
	copy_lines(f, "/proc/self/oom_score_adj", NULL);
	copy_lines(f, "/proc/self/timerslack_ns", NULL);
	copy_lines(f, "/proc/self/coredump_filter", NULL);
	copy_lines(f, "/proc/self/personality", NULL);
	int pdeath = 0, reaper = 0;
	prctl(PR_GET_PDEATHSIG, &pdeath);
	prctl(PR_GET_CHILD_SUBREAPER, &reaper);
	struct itimerval it[3];
	for (int i = 0; i < 3; i++) getitimer(i, &it[i]);
	struct sched_param sp;
	sched_getparam(0, &sp);
	stack_t ss;
	sigaltstack(NULL, &ss);
	char cwd[4096];
	char *tty = ttyname(0);
	int tfd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	fprintf(f, "dumpable %d\nslack %d\npdeathsig %d\nsubreaper %d\n", prctl(PR_GET_DUMPABLE), prctl(PR_GET_TIMERSLACK), pdeath, reaper);
	fprintf(f, "nice %d\nioprio %ld\npolicy %d priority %d\nthp %d\nkeepcaps %d\n", getpriority(PRIO_PROCESS, 0), syscall(SYS_ioprio_get, 1, 0), sched_getscheduler(0), sp.sched_priority, prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), prctl(PR_GET_KEEPCAPS));
	fprintf(f, "pid %d\nppid %d\npgid %d\nsid %d\ncwd %s\ntty %s\nctty %d\nfgpgid %d\n", getpid(), getppid(), getpgid(0), getsid(0), getcwd(cwd, sizeof cwd), tty ? tty : "none", tfd >= 0, tfd >= 0 ? tcgetpgrp(tfd) : -1);
	fprintf(f, "itimers %d %d %d\naltstack %d\n", it[0].it_value.tv_sec > 0, it[1].it_value.tv_sec > 0, it[2].it_value.tv_sec > 0, ss.ss_flags);
	char name[64] = "";
	prctl(PR_GET_NAME, name);
	fprintf(f, "name %s\n", name);
	siginfo_t si;
	fprintf(f, "children %d\n", waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0);
	for (char **e = envp; *e != NULL; e++) fprintf(f, "env %s\n", *e);
	fclose(f);
	return 0;
}

// orphans N FILE: N grandchildren whose parent has gone; the file gets the
// number of those adopted by our parent.
static int orphans(int n, const char *file) {
	int o = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
	for (int i = 0; i < n; i++) {
		pid_t p = fork();
		if (p == 0) {
			pid_t me = getpid();
			if (fork() == 0) {
				while (getppid() == me) usleep(1000);
				dprintf(o, "orphan %d parent %d\n", getpid(), getppid());
				_exit(0);
			}
			_exit(0);
		}
		waitpid(p, NULL, 0);
	}
	dprintf(o, "ready %d parent %d\n", getpid(), getppid());
	for (;;) pause();
}

// adopted PID: makes one after the other until that process adopts them.
static int adopted(pid_t by) {
	pid_t now = 0;
	int fd[2];
	if (pipe(fd) < 0) return 1;
	while (now != by) {
		pid_t p = fork();
		if (p == 0) {
			pid_t me = getpid();
			if (fork() != 0) _exit(0);
			while (getppid() == me) usleep(1000);
			pid_t parent = getppid();
			_exit(write(fd[1], &parent, sizeof parent) < 0);
		}
		waitpid(p, NULL, 0);
		if (read(fd[0], &now, sizeof now) < 0) return 1;
	}
	return 0;
}

// given DISPOSITION... -- COMMAND: i=N ignores signal N, b=N blocks it, p=N sends it
// to itself at the end, c=N
// closes descriptor N, u=N the umask, n=N nice, s=N timer slack, d=N parent
// death signal, r=N soft RLIMIT_NOFILE, o=N opens descriptor N as a pipe,
// f=N as a file; then it becomes the command.
static int given(char **argv) {
	unsigned long mask = 0;
	int pend = 0;
	for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++) {
		int v = atoi(*argv + 2), p[2];
		struct rlimit r;
		switch (**argv) {
		case 'i': {
			struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } ign;
			memset(&ign, 0, sizeof ign);
			ign.handler = (void *)SIG_IGN;
			syscall(SYS_rt_sigaction, v, &ign, NULL, 8);
			break;
		}
		case 'b': mask |= 1UL << (v - 1); break;
		case 'p': pend = v; break;
		case 'c': close(v); break;
		case 'u': umask((mode_t)v); break;
		case 'n': setpriority(PRIO_PROCESS, 0, v); break;
		case 's': prctl(PR_SET_TIMERSLACK, v); break;
		case 'd': prctl(PR_SET_PDEATHSIG, v); break;
		case 'r':
			getrlimit(RLIMIT_NOFILE, &r);
			r.rlim_cur = (rlim_t)v;
			setrlimit(RLIMIT_NOFILE, &r);
			break;
		case 'o':
			if (pipe(p) == 0) {
				int q = fcntl(p[1], F_DUPFD, 900);
				close(p[0]);
				close(p[1]);
				dup2(q, v);
				close(q);
			}
			break;
		case 'f': {
			int q = open("/dev/zero", O_RDONLY);
			int h = fcntl(q, F_DUPFD, 900);
			close(q);
			dup2(h, v);
			close(h);
			break;
		}
		}
	}
	if (mask != 0) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	if (pend != 0) kill(getpid(), pend);
	if (*argv == NULL || argv[1] == NULL) return 97;
	execvp(argv[1], argv + 1);
	return 96;
}

static void exit42(int sig) {
	(void)sig;
	_exit(42);
}

// mapped FILE READY: touches a mapping of FILE and sleeps, over and over; ends
// with status 42 on SIGUSR1.
static int mapped(const char *file, const char *ready) {
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) return 98;
	const volatile char *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) return 97;
	signal(SIGUSR1, exit42);
	FILE *f = fopen(ready, "w");
	if (f == NULL) return 96;
	fprintf(f, "%d\n", getpid());
	fclose(f);
	for (;;) {
		for (off_t i = 0; i < st.st_size; i += 4096)
			if (p[i] != 0) return 95;
		if (poll(NULL, 0, 2) < 0) return 94;
	}
}

int main(int argc, char **argv, char **envp) {
	if (argc >= 3 && strcmp(argv[1], "count") == 0) return count(argv[2]);
	if (argc >= 2 && strcmp(argv[1], "job") == 0) return job();
	if (argc >= 3 && strcmp(argv[1], "die") == 0) return die(atoi(argv[2]));
	if (argc >= 3 && strcmp(argv[1], "exit") == 0) return atoi(argv[2]);
	if (argc >= 3 && strcmp(argv[1], "twin") == 0) return twin(argv[2], envp);
	if (argc >= 4 && strcmp(argv[1], "orphans") == 0) return orphans(atoi(argv[2]), argv[3]);
	if (argc >= 3 && strcmp(argv[1], "adopted") == 0) return adopted(atoi(argv[2]));
	if (argc >= 4 && strcmp(argv[1], "mapped") == 0) return mapped(argv[2], argv[3]);
	if (argc >= 3 && strcmp(argv[1], "given") == 0) return given(argv + 2);
	return 95;
}
