// now prints when its main began, on CLOCK_MONOTONIC in ns: the least a command
// can do to say that it runs.
#include <stdio.h>
#include <time.h>

int main(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	printf("%lld\n", t.tv_sec * 1000000000LL + t.tv_nsec);
	return 0;
}
