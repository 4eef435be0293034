// Raw system calls: where glibc hides something (it keeps signals 32 and 33 for itself and
// refuses to show, block or reset them), and where its code would be in the way. A process that
// waits has in memory what it touched last; glibc's functions lie far apart, and the kernel maps
// 64 KiB around each.
#ifndef RSSWARDEN_HOLD_RAW_H
#define RSSWARDEN_HOLD_RAW_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
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

// raw_call returns what the kernel does: an error is below 0, as -ENOENT.
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return number;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	long got = syscall(number, a, b, c, d, e, f);
	return got < 0 ? -errno : got;
#endif
}

// raw_poll waits for at most so many milliseconds, below 0 for ever.
static inline int raw_poll(struct pollfd *fds, int n, int timeout) {
#ifdef SYS_poll
	return (int)raw_call(SYS_poll, (long)fds, n, timeout, 0, 0, 0);
#else
	struct timespec left = {timeout / 1000, timeout % 1000 * 1000000L};
	return (int)raw_call(SYS_ppoll, (long)fds, n, timeout < 0 ? 0 : (long)&left, 0, 0, 0);
#endif
}

static inline long raw_recv(int fd, void *to, size_t size, int flags) {
	return raw_call(SYS_recvfrom, fd, (long)to, (long)size, flags, 0, 0);
}

static inline long raw_send(int fd, const void *from, size_t size, int flags) {
	return raw_call(SYS_sendto, fd, (long)from, (long)size, flags, 0, 0);
}

#endif
