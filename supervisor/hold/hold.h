// The C half of the holder: what has to happen before the Go runtime starts,
// between clone and execve, and inside a signal handler.
#ifndef RSSWARDEN_HOLD_H
#define RSSWARDEN_HOLD_H

#include <poll.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/types.h>

// hold_early is what this process was given, noted by a constructor before
// the Go runtime changed any of it. Bit n-1 of a set stands for signal n.
struct hold_early {
	int active; // argv[1] is "run": the state below is noted, signals are blocked
	uint64_t ignored;
	uint64_t blocked;
	uint64_t pending; // sent before exec, and waiting since
	uint64_t nofile_soft, nofile_hard;
	int closed;    // bit n: descriptor n (0, 1, 2) was closed
	int pdeathsig; // PR_GET_PDEATHSIG
	int subreaper; // PR_GET_CHILD_SUBREAPER, which exec keeps
	int site;      // the SPANK plugin of the site started us: see task.c
};
extern struct hold_early hold_early;

extern char **environ;

// hold_record is what the signal handler writes to its pipe.
struct hold_record {
	int32_t signo, code, pid;
	uint32_t uid;
	uint64_t value; // of sigqueue(3)
	uint64_t time;  // CLOCK_MONOTONIC, ns
	int64_t parent; // of pid, 0 where it is gone
};

// hold_batch is what one read of the signalfd gives.
struct hold_batch {
	int size; // bytes in info
	struct signalfd_siginfo info[16];
	pid_t parent[16]; // of each sender, 0 where it is gone
};

// hold_child is one program to start.
struct hold_child {
	char **paths;       // tried in this order, as execvp(3) does
	char **argv, **envp;
	char **given;       // environment for where execve says E2BIG with envp, or NULL
	char **shell;       // argv for /bin/sh when execve says ENOEXEC, or NULL
	int watcher;        // 0: the user's command, as bare; 1: our watcher
	int link, null;     // watcher: becomes descriptor 0; /dev/null
	const int *keep;    // watcher: descriptors it keeps, ascending
	int nkeep;
	uint64_t pending;   // out: signals pending just before the clone
	uint64_t time;      // out: when the clone was called, CLOCK_MONOTONIC, ns
	int exec_errno;     // out: why execve failed, or 0
	int left_out;       // out: it has the environment in given
};

enum { HOLD_HIDDEN = 1 }; // first byte of a variable that is hidden from our runtime

// hold_message is message of message.go, and these the kinds that park.c knows.
struct hold_message {
	uint32_t kind;
	int32_t a, b, c;
	uint64_t set, trim[6];
};
enum { HOLD_EXIT = 2, HOLD_SIGNAL, HOLD_DRAIN, HOLD_DRAINED, HOLD_PENDING, HOLD_SUBREAPER, HOLD_OVERRIDE };

// hold_parked is the state of a parked holder, for the Go program that takes over.
enum { HOLD_FORKED = 1, HOLD_WOKEN, HOLD_TRIAL, HOLD_KEEP = 4 };
struct hold_parked {
	int role;            // HOLD_FORKED: to become the watcher; HOLD_WOKEN: the holder; HOLD_TRIAL: to end at once; or 0
	int link;            // to the other
	pid_t holder;        // our PID, also in the fork
	pid_t parent;        // ours when we began
	pid_t pid, watcher;  // the command; 0 for none
	int pidfd, signals;  // signalfd
	int at_once, subreaper; // the command is started before the verdict; with us as a subreaper
	char *dir;           // the run directory of a command that is started at once, or NULL
	struct hold_child *child; // how the command is started
	int noted, wake;     // ends of the pipe that the handler writes to
	int nkeep, keep[HOLD_KEEP];
	int flush, left_out; // ms; it has not our variables
	pid_t begun;         // fork: the command that was started at once, or 0
	int ended, code, status; // of the command: si_code, si_status
	uint64_t end;        // of the watcher's flush, CLOCK_MONOTONIC, ns, or 0
	int told, override;  // the watcher knows; exit status that it asked for, or -1
	uint64_t early, began; // as in hold_child
	uint64_t draining;   // signals of which the watcher was asked to take its copy
	struct hold_batch batch; // of signals that were read
	uint64_t read;       // when, CLOCK_MONOTONIC, ns
	char *setup;
	int setup_size;
	struct hold_verdict *verdict; // fork: where it is written, room bytes; holder: where the setup will be, or NULL
	size_t room;
};
extern struct hold_parked hold_parked;

// hold_verdict is how the command is to be started. Behind it lie nenv indices of the
// environment as given, -1 for a new entry; the paths; the new entries; the setup.
enum { HOLD_VERDICT = 1, HOLD_LEAVE };           // the word that says that it is there
struct hold_verdict {
	int32_t command; // where in argv it begins
	int32_t npaths, nenv, nkeep, keep[HOLD_KEEP];
	int32_t flush_ms, subreaper, setup;
	int32_t ready; // of a command that was started at once: the setup is there
	int32_t over;  // … it has ended: 1 with a status of its own, -1 otherwise
};
struct hold_answer {
	int32_t pid, left_out;
};

// HOLD_FAULTS are the signals that a thread raises by a fault of its own.
#define HOLD_FAULTS (RAW_BIT(SIGSEGV) | RAW_BIT(SIGBUS) | RAW_BIT(SIGFPE) | RAW_BIT(SIGILL) | RAW_BIT(SIGTRAP))

// hold_rest is what a watcher at rest has; descriptors but for those that say so.
struct hold_rest {
	int link;   // to its holder
	int state;  // a file with the message that it began with
	int leader; // pidfd
	int lock;   // of the lead
	int orders; // inotify
	int holder; // PID
	int led_by; // the leader's PID
	int leads;  // the lock is ours
	int ended;  // the leader was stopped and has been ended here
};
extern struct hold_rest hold_rest;

#ifdef __GLIBC__
enum { HOLD_RESTS = 1 }; // only glibc hands argv to constructors
#else
enum { HOLD_RESTS = 0 };
#endif

enum { HOLD_HANDLER_HOLDER, HOLD_HANDLER_WATCHER };

void hold_park(char **argv, char **envp);
int hold_at_once(struct hold_child *c, char **argv, char **command, char **envp);
void hold_make_run_directory(void);
void hold_late(pid_t command, struct hold_verdict *v); // returns once there is something to watch
int hold_options(char **argv, char **command, int *hooked);
int hold_asked_for(struct hold_verdict *v, struct hold_child *c, char **argv, char **envp);
int hold_drain(uint64_t set);           // asks the watcher to take its copies; whether it could
int hold_hear(int link, int *ended);    // the watcher's side of that; whether there is more
int hold_pass(void);                    // forwards the batch; whether some of it is left
void hold_pass_all(void);               // forwards what is left
void hold_at_rest(char **argv);
void hold_as_watcher(char **argv);
void hold_small_mappings(void);         // cuts our program's mapping in pieces
void hold_slim(void);                   // gives back the pages of our files that nothing was written to
char **hold_command(char **argv, int *quiet); // where in argv the command of "run" begins, or NULL
const char *hold_missing(void);         // why there can be nothing of ours beside the command, or NULL
_Noreturn void hold_in_place(char **command, int quiet, const char *why); // executes it in place of this process
void hold_catch(int mode, int fd);      // hold_install before there is a Go runtime
int hold_by_site(char **envp);
void hold_task(int argc, char **argv, char **envp);
void hold_room(char **argv);            // no room for us beside the command: executes it and does not return
int hold_reserve(void);                 // makes the threads that a Go runtime begins with
void hold_unreserve(int forked);
int hold_tasks(int n);                 // the kernel's figures say that n more tasks can be made
const char *hold_refused(int always);        // what a seccomp filter refuses to the Go runtime, or NULL
void hold_address(void);                // no room for Go: says so and ends the process
void hold_dispositions(uint64_t ignored); // every signal's is the default, or to ignore it
void hold_as_bare(void);                // gives this process back what the user gave us
pid_t hold_spawn(struct hold_child *c); // PID, or -errno when no process could be made
int hold_exec(struct hold_child *c);    // replaces this process; returns errno
pid_t hold_fork_oom_first(void);        // fork(2) of a process that an OOM kill takes first
int hold_install(int mode, int fd);     // one handler for all signals, instead of the Go runtime's
uint64_t hold_now(void);                // CLOCK_MONOTONIC, ns
int hold_mask_thread(pid_t tid);        // watcher: has that thread block what a witness must block
void hold_unmask_begin(void);           // watcher: this thread is about to start a program
void hold_unmask_end(void);
int hold_stop(int sig, pid_t command);  // stops this process by sig if the command is stopped
void hold_die(int sig);                 // dies by sig; returns if that is impossible
int hold_forward(int pidfd, pid_t pid, int sig, int code, pid_t from, uid_t uid, uint64_t value);
pid_t hold_parent(pid_t pid);          // its parent, 0 where it is gone
char hold_state(pid_t pid);            // its state as in /proc/PID/stat, 0 where it is gone
void hold_read(int fd, struct hold_batch *b); // reads the signalfd
int hold_poll(struct pollfd *fds, int n, int timeout, int signals, struct hold_batch *b); // poll(2), and hold_read of fds[signals]; -errno
int hold_setmask(uint64_t mask, uint64_t *old);

#endif
