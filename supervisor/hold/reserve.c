#define _GNU_SOURCE
#include "hold.h"

#include <pthread.h>
#include <semaphore.h>

// A Go runtime that cannot make a thread ends its process, which is the holder by then. So the
// threads that one begins with exist before a parked holder becomes one: the linker has calls of
// pthread_create(3) come here (--wrap), which hands them out.

enum { RESERVE = 16 }; // a woken holder has 12

static struct spare {
	pthread_t id;
	sem_t begin;
	void *(*work)(void *);
	void *arg;
} spares[RESERVE];
static int left;    // spares[0] to [left-1] wait
static sem_t ready; // how many have begun to

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*work)(void *), void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*work)(void *), void *arg);

static void *wait_for_work(void *p) {
	struct spare *s = p;
	sem_post(&ready);
	while (sem_wait(&s->begin) != 0) {
	}
	return s->work == NULL ? NULL : s->work(s->arg);
}

static int begin(pthread_t *id, void *(*work)(void *), void *arg) {
	int n = __atomic_load_n(&left, __ATOMIC_ACQUIRE);
	while (n > 0 && !__atomic_compare_exchange_n(&left, &n, n - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
	}
	if (n <= 0) return 0;
	struct spare *s = &spares[n - 1];
	*id = s->id;
	s->work = work;
	s->arg = arg;
	sem_post(&s->begin);
	return 1;
}

// All that Go makes are detached, of the usual size, and block all signals, as these do.
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*work)(void *), void *arg) {
	return begin(id, work, arg) ? pthread_detach(*id) : __real_pthread_create(id, attr, work, arg);
}

// hold_reserve makes the threads, and says whether it could make all.
int hold_reserve(void) {
	int n = 0;
	if (sem_init(&ready, 0, 0) != 0) return 0;
	while (n < RESERVE) {
		if (sem_init(&spares[n].begin, 0, 0) != 0 || __real_pthread_create(&spares[n].id, NULL, wait_for_work, &spares[n]) != 0) break;
		n++;
	}
	for (int i = 0; i < n; i++) // a fork is to find them at rest
		while (sem_wait(&ready) != 0) {
		}
	__atomic_store_n(&left, n, __ATOMIC_RELEASE);
	if (n < RESERVE) hold_unreserve(0);
	return n == RESERVE;
}

// hold_unreserve ends them; in a fork there are none.
void hold_unreserve(int forked) {
	pthread_t id;
	if (forked) __atomic_store_n(&left, 0, __ATOMIC_RELEASE);
	while (begin(&id, NULL, NULL)) pthread_join(id, NULL);
}
