// moving COUNTERS DATA
//
// One thread takes the mapping of DATA away all the time and has private
// memory at the same place, with a pattern in it; the main thread sleeps.
#include "stand.h"

enum { TURNS, LOST, WRONG, WOKEN };

static int fd;

// moment passes some time, now running, now asleep.
static void moment(uint64_t *state) {
	uint64_t d = dice(state), ns = d % 200000;
	if (d >> 60 & 1) {
		struct timespec t = {0, ns};
		nanosleep(&t, 0);
		return;
	}
	for (uint64_t end = now() + ns; now() < end;)
		;
}

static void *mover(void *arg) {
	uint64_t state = (uintptr_t)&arg, n = data_len / 8;
	void *at = (void *)data;
	for (uint64_t turn = 0;; turn++) {
		if (turn & 1) // There is a moment with nothing mapped.
			munmap(at, data_len);
		if (mmap(at, data_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
			fail("mmap anonymous");
		volatile uint64_t *mine = at;
		for (uint64_t i = 0; i < n; i++)
			mine[i] = i ^ ~turn;
		moment(&state);
		uint64_t lost = 0;
		for (uint64_t i = 0; i < n; i++)
			lost += mine[i] != (i ^ ~turn);
		if (lost)
			count(LOST, lost);
		if (turn & 2)
			munmap(at, data_len);
		if (mmap(at, data_len, PROT_READ, MAP_SHARED | MAP_POPULATE | MAP_FIXED, fd, 0) != at)
			fail("mmap file");
		for (size_t p = 0; p < data_len / PAGE; p += 16)
			if (!page_right(p))
				count(WRONG, 1);
		moment(&state);
		count(TURNS, 1);
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	stand(argv[1]);
	map_data(argv[2]);
	fd = open(argv[2], O_RDONLY);
	ready();
	// The test has looked the mapping up before it begins to move.
	while (!counters[8])
		usleep(1000);
	thread(mover, 0);
	for (;;) {
		asleep("futex", -1);
		count(WOKEN, 1);
	}
}
