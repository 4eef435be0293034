#define _GNU_SOURCE
#include "hold.h"
#include "raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

// A watcher at rest. On a node with many ranks one watcher leads, and the others have nothing
// to do. Such a one executes this program again, and is this loop from then on: the same
// process, with the same link to its holder, which still finds its witness, but without a Go
// runtime. It returns, and the runtime starts, when the leader ends, gives an order, or the
// holder has anything to say but what a witness is asked for. Nothing is allocated here.

struct hold_rest hold_rest = {.link = -1};

static struct hold_rest *const r = &hold_rest;

#define MS UINT64_C(1000000)

static const uint64_t look = 3000 * MS;        // how often the states of holder and leader are read
static const uint64_t recheck = 1000 * MS;     // … that of a leader which was stopped
static const uint64_t renew = 6 * 3600000 * MS; // when our files are looked after: what cleans /tmp takes days
static const uint64_t keep_witness = 20 * MS;  // as in link.go
static const uint64_t spread = 30000 * MS;     // within which those at rest follow another leader

// of_threads are ofThreads in rest.go.
static const uint64_t of_threads = RAW_BIT(SIGURG) | RAW_BIT(SIGSTKFLT);

static uint64_t pending(void) {
	uint64_t set = 0;
	raw_call(SYS_rt_sigpending, (long)&set, sizeof set, 0, 0, 0, 0);
	return set & ~of_threads;
}

// drain takes one copy of each signal in set, and says so.
static void drain(int link, const struct hold_message *asked) {
	struct hold_message m = {.kind = HOLD_DRAINED, .a = asked->a, .set = asked->set};
	struct timespec now = {0, 0};
	for (int s = 1; s <= 64; s++) {
		uint64_t one = RAW_BIT(s);
		siginfo_t si;
		if (m.set & one) raw_call(SYS_rt_sigtimedwait, (long)&one, (long)&si, (long)&now, sizeof one, 0, 0);
	}
	raw_send(link, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// hold_hear answers what a witness is asked for. It says that the rest is for the Go program, and
// sets ended where the command, or the holder, has.
int hold_hear(int link, int *ended) {
	for (;;) {
		struct hold_message m;
		long n = raw_recv(link, &m, sizeof m, MSG_PEEK | MSG_DONTWAIT);
		if (n == -EAGAIN || n == -EINTR) return 0;
		*ended = n <= 0 || (n == sizeof m && m.kind == HOLD_EXIT);
		if (n != sizeof m || m.kind != HOLD_DRAIN) return 1;
		raw_recv(link, &m, sizeof m, MSG_DONTWAIT);
		drain(link, &m);
	}
}

// wait_for_room waits while there is none for a Go runtime, which would end this process.
static void wait_for_room(void) {
	int ended = 0;
	while (hold_missing() != NULL) {
		if (r->leads) flock(r->lock, LOCK_UN);
		r->leads = 0;
		for (int i = 0; i < 100; i++) {
			hold_hear(r->link, &ended);
			if (ended) _exit(0); // the leader sees it, and says that nothing is known of the end
			nanosleep(&(struct timespec){0, 100 * (long)MS}, NULL);
		}
	}
}

// leader_stopped ends a leader that two checks, a second apart, found stopped: nobody watches
// meanwhile, and the lock of a stopped process lasts. It returns since when the leader is known to
// be stopped. A check that comes late begins anew: this process was stopped too, as the whole job is
// by scontrol suspend.
static uint64_t leader_stopped(uint64_t since, uint64_t late) {
	uint64_t now = hold_now();
	if (hold_state(r->led_by) != 'T' || late > recheck) return 0;
	if (since == 0) return now;
	if (now - since >= recheck) r->ended = syscall(SYS_pidfd_send_signal, r->leader, SIGKILL, NULL, 0) == 0;
	return since;
}

static void rest(int signals) {
	uint64_t end = hold_now() + renew, search = 0, until = 0, seen = 0, stopped = 0;
	uint64_t share = (uint32_t)getpid() * UINT32_C(2654435761) >> 16; // of 65536: each process its own
	int ended = 0;
	struct pollfd f[4] = {{r->link, POLLIN, 0}, {r->leader, POLLIN, 0}, {r->orders, POLLIN, 0}, {signals, POLLIN, 0}};
	hold_slim(); // last: what is called from here on has no code but in this directory
	for (uint64_t now; (now = hold_now()) < end;) {
		if (search != 0 && now >= search) return;
		if (until != 0 && now >= until) {
			if (seen & pending()) return; // it was for this process alone: the holder is to be asked
			until = 0;
		}
		uint64_t next = now + (stopped ? recheck : look);
		if (search != 0 && search < next) next = search;
		if (until != 0 && until < next) next = until;
		f[0].revents = f[1].revents = f[2].revents = f[3].revents = 0;
		f[1].fd = search ? -1 : r->leader;
		f[3].fd = until ? -1 : signals;
		int n = raw_poll(f, 4, (int)((next - now) / MS) + 1);
		if ((n < 0 && n != -EINTR) || f[2].revents != 0) return;
		if (f[0].revents != 0 && hold_hear(r->link, &ended)) return;
		if (f[1].revents != 0) {
			// The first has the lead. What was written into the lock stays for the Go program.
			r->leads = flock(r->lock, LOCK_EX | LOCK_NB) == 0;
			if (r->leads || errno != EWOULDBLOCK) return;
			search = hold_now() + share * spread / 65536;
		}
		if (f[3].revents != 0) seen = pending(), until = hold_now() + keep_witness;
		if (n == 0 && hold_state(r->holder) == 'T') return; // the Go program knows what to do if the command is not
		if (n == 0 && search == 0) stopped = leader_stopped(stopped, hold_now() - next);
	}
}

// hold_at_rest takes what link.go's Rest has written in argv. It returns for the Go program to
// go on as a watcher.
void hold_at_rest(char **argv) {
	int *const to[] = {&r->link, &r->state, &r->leader, &r->lock, &r->orders, &r->holder, &r->led_by};
	const uint64_t all = ~HOLD_FAULTS;
	for (int i = 0; i < (int)(sizeof to / sizeof *to); i++) {
		if (argv[2 + i] == NULL) return;
		*to[i] = atoi(argv[2 + i]);
	}
	const uint64_t watched = all & ~of_threads;
	raw_sigmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_NAME, argv[0]);
	int signals = (int)syscall(SYS_signalfd4, -1, &watched, sizeof watched, SFD_CLOEXEC | SFD_NONBLOCK);
	rest(signals);
	wait_for_room();
	if (signals >= 0) close(signals);
	close(r->leader);
	if (!r->leads) close(r->lock);
	close(r->orders);
	hold_catch(HOLD_HANDLER_WATCHER, -1);
}
