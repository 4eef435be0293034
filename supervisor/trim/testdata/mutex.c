// mutex FILE: maps it, and has one thread wait for a mutex that the main one
// holds, which waits for its input to end. Says "waiting TID", and at the end
// "got it".
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *waiter(void *unused) {
	printf("waiting %ld\n", (long)syscall(SYS_gettid));
	fflush(stdout);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(int argc, char **argv) {
	struct stat st;
	pthread_t t;
	char c;
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || fstat(fd, &st) < 0) return 1;
	const volatile char *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) return 1;
	for (off_t i = 0; i < st.st_size; i += 4096) (void)p[i];
	pthread_mutex_lock(&mutex);
	if (pthread_create(&t, NULL, waiter, NULL) != 0) return 1;
	while (read(0, &c, 1) > 0)
		;
	pthread_mutex_unlock(&mutex);
	pthread_join(t, NULL);
	printf("got it\n");
	return 0;
}
