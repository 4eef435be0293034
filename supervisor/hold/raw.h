// Raw system calls where glibc hides something: it keeps signals 32 and 33
// for itself and refuses to show, block or reset them.
#ifndef RSSWARDEN_HOLD_RAW_H
#define RSSWARDEN_HOLD_RAW_H

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

// raw_action is the kernel's struct sigaction (amd64, arm64, ppc64le).
struct raw_action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

#define RAW_BIT(sig) (UINT64_C(1) << ((sig)-1))

static inline int raw_sigaction(int sig, const struct raw_action *set, struct raw_action *old) {
	return (int)syscall(SYS_rt_sigaction, sig, set, old, sizeof(uint64_t));
}

static inline int raw_sigmask(int how, const uint64_t *set, uint64_t *old) {
	return (int)syscall(SYS_rt_sigprocmask, how, set, old, sizeof(uint64_t));
}

#endif
