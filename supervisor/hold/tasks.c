#define _GNU_SOURCE
#include "hold.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

// Whether there is room for tasks is tried by making them, which takes a
// millisecond. The kernel's figures tell in a tenth of that, where there is
// plenty: whatever cannot be read, or is not as it should be, is a doubt.

enum { PROC_MAGIC = 0x9fa0 }; // statfs(2)
static const char controllers_v1[] = "/sys/fs/cgroup/pids", mount_v2[] = "/sys/fs/cgroup";

static int read_file(const char *path, char *buf, size_t size, int proc) {
	struct statfs fs;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return 0;
	// lxcfs puts files of its own in these places, about the container alone.
	ssize_t n = proc && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_MAGIC) ? -1 : read(fd, buf, size - 1);
	close(fd);
	if (n <= 0 || (size_t)n == size - 1) return 0;
	buf[n] = 0;
	return 1;
}

// figure reads one number, LLONG_MAX for "max" and -1 for what is none.
static long long figure(const char *path, int proc) {
	char buf[64], *end;
	if (!read_file(path, buf, sizeof buf, proc)) return -1;
	if (strncmp(buf, "max", 3) == 0) return LLONG_MAX;
	long long n = strtoll(buf, &end, 10);
	return end == buf ? -1 : n;
}

// node says that neither the node nor the user's RLIMIT_NPROC, which counts a
// part of the node's tasks, forbids n more.
static int node(long long n) {
	char buf[128];
	struct rlimit r;
	if (!read_file("/proc/loadavg", buf, sizeof buf, 1)) return 0;
	char *slash = strchr(buf, '/');
	if (slash == NULL) return 0;
	n += atoll(slash + 1);
	if (getrlimit(RLIMIT_NPROC, &r) < 0) return 0;
	if (r.rlim_cur != RLIM_INFINITY && (rlim_t)n > r.rlim_cur) return 0;
	return n < figure("/proc/sys/kernel/threads-max", 1) && n < figure("/proc/sys/kernel/pid_max", 1);
}

// levels says that no pids.max from dir up to its first root characters is
// against n more. dir is changed.
static int levels(char *dir, size_t root, long long n) {
	char path[PATH_MAX + 16];
	if (access(dir, F_OK) < 0) return 0;
	for (;;) {
		snprintf(path, sizeof path, "%s/pids.max", dir);
		long long max = figure(path, 0);
		size_t length = strlen(dir);
		if (max < 0 && access(path, F_OK) == 0) return 0;
		// The root has no limit. One there is that of a container, and of what
		// is above it nothing can be seen.
		if (length <= root) return max < 0;
		if (max >= 0 && max != LLONG_MAX) {
			snprintf(path, sizeof path, "%s/pids.current", dir);
			long long current = figure(path, 0);
			if (current < 0 || current + n > max) return 0;
		}
		char *slash = strrchr(dir + root, '/');
		if (slash == NULL) return 0;
		*slash = 0;
	}
}

// initial says that this is the initial cgroup namespace (PROC_CGROUP_INIT_INO,
// include/linux/proc_ns.h). In another, names are not those of the directories.
static int initial(void) {
	static const char first[] = "cgroup:[4026531835]";
	char name[64];
	ssize_t n = readlink("/proc/self/ns/cgroup", name, sizeof name);
	return n == sizeof first - 1 && memcmp(name, first, sizeof first - 1) == 0;
}

// cgroups does so for the pids controller, wherever it is mounted.
static int cgroups(long long n) {
	static char buf[16 << 10];
	char dir[PATH_MAX];
	const char *root = NULL, *name = NULL;
	if (!initial()) return 0;
	if (!read_file("/proc/self/cgroup", buf, sizeof buf, 1)) return 0;
	for (char *line = strtok(buf, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		char *list = strchr(line, ':'), *path = list == NULL ? NULL : strchr(list + 1, ':');
		if (path == NULL) return 0;
		*path++ = 0;
		if (strcmp(list, ":pids") == 0) {
			root = controllers_v1;
			name = path;
		} else if (strstr(list, "pids") != NULL) {
			return 0;
		} else if (list[1] == 0 && root == NULL) {
			root = mount_v2;
			name = path;
		}
	}
	if (root == NULL || (root == mount_v2 && access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0)) return 0;
	if (strcmp(name, "/") == 0) name = "";
	if (snprintf(dir, sizeof dir, "%s%s", root, name) >= (int)sizeof dir) return 0;
	return levels(dir, strlen(root), n);
}

int hold_tasks(int n) { return node(n) && cgroups(n); }
