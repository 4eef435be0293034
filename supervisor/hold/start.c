#define _GNU_SOURCE
#include "hold.h"
#include "at_once.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// How a parked holder is to start the command: as the verdict of the Go program says, or at
// once, where that could only say yes. Then all it would look at is what each run has: options
// whose values C can judge, no other source of options, the loader hook in its place, whole and
// the user's own. What is in doubt waits for the verdict. The Go program finds the same a few
// milliseconds later, and reports what differs (Differs in park.go).

static struct hold_parked *const p = &hold_parked;

enum { MOUNTS = 256 << 10 };

#ifdef RSSWARDEN_FAULTS // a program for tests
#define FAULT "RSSWARDEN_FAULT="
#else
#define FAULT "="
#endif

extern const char hold_other_site[] __attribute__((weak)); // a test's program has another site file

// read_file reads a small file of /proc as text.
static int read_file(const char *name, char *text, size_t room) {
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t n = 0;
	if (fd < 0) return 0;
	while (size < room - 1 && (n = read(fd, text + size, room - 1 - size)) > 0) size += (size_t)n;
	close(fd);
	text[size] = 0;
	return n == 0 && size > 0;
}

// served says that a file server, or a program, may have a say on the way to a path. It knows
// fewer kinds of file systems than nodedir.Unserved. The root's is as good as our program's.
static int served(const char *mounts, const char *path, size_t length) {
	static const char *const own[] = {"ext4 ", "xfs ", "btrfs ", "tmpfs ", "devtmpfs ", "proc ", "sysfs ", "cgroup ", "cgroup2 "};
	for (const char *line = mounts, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		const char *point = line, *type = strstr(line, " - ");
		for (int n = 0; n < 4 && point != NULL; n++) point = strchr(point + 1, ' ');
		if (point == NULL || type == NULL || type > end) return 1;
		size_t n = strcspn(++point, " ");
		if (n == 1 || n > length || memcmp(point, path, n) != 0 || (path[n] != '/' && n != length)) continue;
		int known = 0;
		for (size_t i = 0; i < sizeof own / sizeof *own; i++) known |= strncmp(type + 3, own[i], strlen(own[i])) == 0;
		if (!known) return 1;
	}
	return 0;
}

// program_served says that of the files that are mapped here, which are read again when this
// process wakes up.
static int program_served(const char *mounts) {
	char maps[16 << 10];
	if (!read_file("/proc/self/maps", maps, sizeof maps)) return 1;
	for (char *file = maps; (file = strchr(file, '/')) != NULL;) {
		size_t n = strcspn(file, "\n");
		if (served(mounts, file, n)) return 1;
		file += n;
	}
	return 0;
}

// ours says that only this user or root can change it. The last user is all whom a user
// namespace does not know.
static int ours(const struct stat *st, mode_t sticky) {
	static uid_t self = 65534;
	if (self == 65534) self = geteuid();
	return self != 65534 && (st->st_uid == 0 || st->st_uid == self) && ((st->st_mode & 022) == 0 || (st->st_mode & sticky) != 0);
}

// safe says that a path leads to a directory without a link, a file server or another user's
// right to change it on the way.
static int safe(const char *mounts, const char *path) {
	char part[PATH_MAX];
	size_t length = strlen(path);
	struct stat st;
	if (length >= sizeof part || *path != '/' || strpbrk(path, ": \t\n\\") != NULL || served(mounts, path, length)) return 0;
	if (lstat("/", &st) < 0 || !ours(&st, S_ISVTX)) return 0;
	memcpy(part, path, length + 1);
	for (char *name = part + 1, *end; name != NULL; name = end) {
		size_t n = strcspn(name, "/");
		if (n == 0 || (*name == '.' && (n == 1 || (n == 2 && name[1] == '.')))) return 0;
		end = name[n] == '/' ? name + n + 1 : NULL;
		name[n] = 0;
		if (lstat(part, &st) < 0 || !S_ISDIR(st.st_mode) || !ours(&st, S_ISVTX)) return 0;
		if (end != NULL) name[n] = '/';
	}
	return 1;
}

// entries counts what is in a directory, -1 where that fails.
static int entries(int dir, const char *name) {
	_Alignas(8) char buf[8 << 10];
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), n = 0;
	long size = fd < 0 ? -1 : syscall(SYS_getdents64, fd, buf, sizeof buf);
	if (fd >= 0) close(fd);
	if (size < 0 || size > (long)sizeof buf - 512) return -1;
	for (char *at = buf; at < buf + size; n++) {
		unsigned short length; // of linux_dirent64, see getdents64(2)
		memcpy(&length, at + 16, sizeof length);
		at += length;
	}
	return n;
}

// hook_whole says that a directory has the files of the hook, and no other. The names, sizes,
// owners and modes are looked at; the Go program compares the contents.
static int hook_whole(const char *dir) {
	struct stat st;
	int whole = 1, fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) return 0;
	for (size_t i = 0; whole && i < sizeof hook_files / sizeof *hook_files; i++) {
		const struct hook_file *f = &hook_files[i];
		whole = fstatat(fd, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && ours(&st, 0);
		if (f->entries == 0) {
			whole = whole && S_ISREG(st.st_mode) && st.st_size == f->size;
		} else {
			whole = whole && S_ISDIR(st.st_mode) && (f->entries < 0 || entries(fd, f->name) == f->entries);
		}
	}
	close(fd);
	return whole;
}

// own_directory makes a directory that is this user's alone. made: it must not be there.
static int own_directory(const char *dir, int made) {
	struct stat st;
	if (mkdir(dir, 0700) == 0) return chmod(dir, 0700) == 0; // the umask may have taken some
	return !made && errno == EEXIST && lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && ours(&st, 0) && st.st_uid == geteuid() && (st.st_mode & 0777) == 0700;
}

// own_parent makes the directory above dir, which all runs of this user have.
static int own_parent(char *dir) {
	char *last = strrchr(dir, '/');
	*last = 0;
	int own = own_directory(dir, 0);
	*last = '/';
	return own;
}

// name_run_directory is the path of one that nobody has: "run", our PID and start, as
// loader.Prepare names it. NULL where its place is not surely good.
static char *name_run_directory(const char *mounts) {
	static const unsigned own[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630}; // ext4, xfs, btrfs, tmpfs, overlay
	char stat[1024], *dir = NULL;
	const char *parent = getenv("RSSWARDEN_RUNTIME");
	struct statfs fs;
	int local = 0;
	if (parent == NULL || *parent == 0) parent = getenv("TMPDIR");
	if (parent == NULL || *parent == 0) parent = "/tmp";
	if (!safe(mounts, parent) || statfs(parent, &fs) < 0) return NULL;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) local |= (unsigned)fs.f_type == own[i];
	if (!local || !read_file("/proc/self/stat", stat, sizeof stat) || atoi(stat) != p->holder) return NULL;
	char *field = strrchr(stat, ')');
	for (int n = 2; n < 22 && field != NULL; n++) field = strchr(field + 1, ' ');
	if (field == NULL) return NULL;
	if (asprintf(&dir, "%s/rsswarden-%d/run.%d.%llu", parent, (int)geteuid(), p->holder, strtoull(field + 1, NULL, 10)) < 0) return NULL;
	if (own_parent(dir)) return dir;
	return free(dir), NULL;
}

// hold_make_run_directory makes it while the command begins: a Python that does looks into it
// milliseconds later. What fails here the Go program tries again.
void hold_make_run_directory(void) {
	char text[256], boot[64], space[64] = "", name[PATH_MAX];
	if (!read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) || readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) return;
	if (!own_parent(p->dir) || !own_directory(p->dir, 1)) return; // the last run that ended has removed its parent
	snprintf(name, sizeof name, "%s/identity", p->dir);
	int n = snprintf(text, sizeof text, "version 1\npid %d\nstart %s\nboot_id %spid_ns %s\n", p->holder, strrchr(p->dir, '.') + 1, boot, space);
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && write(fd, text, (size_t)n) != n) unlink(name);
	if (fd >= 0) close(fd);
}

// remove_run_directory removes it if it has no files but ours, and returns whether it is gone.
static int remove_run_directory(void) {
	char name[PATH_MAX];
	if (p->dir == NULL) return 1;
	if (entries(AT_FDCWD, p->dir) != 3) return 0; // "identity", "." and ".."
	snprintf(name, sizeof name, "%s/identity", p->dir);
	unlink(name);
	if (rmdir(p->dir) < 0) return 0;
	*strrchr(p->dir, '/') = 0;
	rmdir(p->dir); // of the last run
	return 1;
}

// small says that the command is one process with less than 64 MiB, see proc_pid_statm(5).
static int small(pid_t pid) {
	char name[64], text[128];
	unsigned long resident, most = (64UL << 20) / (unsigned long)sysconf(_SC_PAGESIZE);
	snprintf(name, sizeof name, "/proc/%d/statm", (int)pid);
	if (!read_file(name, text, sizeof text) || sscanf(text, "%*u %lu", &resident) != 1 || resident >= most) return 0;
	snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	int none = fd >= 0 && read(fd, text, 1) == 0;
	if (fd >= 0) close(fd);
	return none;
}

// hold_late delays the fork that becomes the watcher while the command is one small process, for
// two seconds at most. If the command exits by itself before that, the fork ends too: most steps of
// a site are like that, and a Go runtime takes longer than some of them.
void hold_late(pid_t command, struct hold_verdict *v) {
	enum { SLICE = 50, SLICES = 40, TOLD = 200 /* ms */ };
	struct pollfd f[2] = {{(int)syscall(SYS_pidfd_open, command, 0), POLLIN, 0}, {p->link, POLLIN, 0}};
	int pidfd = f[0].fd, gone = pidfd < 0 && errno == ESRCH, over = 0, ended = 0;
	uint64_t set = 0, old; // what is pending, and was a slice ago: it was for this process alone, and is to be taken
	for (int n = 0; pidfd >= 0 && !gone && n < SLICES && __atomic_load_n(&v->over, __ATOMIC_ACQUIRE) == 0 && small(command); n++) {
		poll(f, 2, SLICE);
		gone = f[0].revents != 0;
		if (f[1].revents != 0 && hold_hear(p->link, &ended)) break;
		old = set;
		syscall(SYS_rt_sigpending, &set, sizeof set);
		struct hold_message m = {.kind = HOLD_PENDING, .set = set & old};
		if (m.set != 0) send(p->link, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	gone |= pidfd >= 0 && poll(f, 1, 0) > 0; // what has ended is not small
	if (pidfd >= 0) close(pidfd);
	for (int n = 0; gone && n < TOLD && (over = __atomic_load_n(&v->over, __ATOMIC_ACQUIRE)) == 0; n++) usleep(1000);
	if (over > 0 && remove_run_directory()) _exit(0);
}

// find_hook returns the path of the hook's directory, or NULL.
static char *find_hook(const char *mounts) {
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *dir = NULL;
	int n = -1;
	if (cache != NULL && *cache != 0) {
		n = asprintf(&dir, "%s/rsswarden/" HOOK_NAME, cache);
	} else if (home != NULL && *home != 0) {
		n = asprintf(&dir, "%s/.cache/rsswarden/" HOOK_NAME, home);
	}
	if (n < 0) return NULL;
	if (safe(mounts, dir) && hook_whole(dir)) return dir;
	return free(dir), NULL;
}

// in_job says whether this is a Slurm job, as slurm.FromEnv does; -1 where that is in doubt.
static int in_job(void) {
	const char *id = getenv("SLURM_JOB_ID");
	if (id == NULL || *id == 0) id = getenv("SLURM_JOBID");
	if (id == NULL || *id == 0) return 0;
	return strspn(id, "0123456789") == strlen(id) ? 1 : -1;
}

// find_paths lists the files that execvp(3) would try.
static int find_paths(struct hold_child *c, const char *name) {
	const char *path = getenv("PATH");
	size_t n = 1;
	if (strchr(name, '/') != NULL || *name == 0) path = "";
	if (path == NULL) path = "/bin:/usr/bin";
	for (const char *s = path; *s != 0; s++) n += *s == ':';
	if ((c->paths = calloc(n + 1, sizeof(char *))) == NULL) return 0;
	for (size_t i = 0; i < n; i++, path += *path == ':') {
		int length = (int)strcspn(path, ":");
		if (asprintf(&c->paths[i], "%.*s%s%s", length, path, length > 0 ? "/" : "", name) < 0) return 0;
		path += length;
	}
	return 1;
}

// make_environment is loader.Environ.
static int make_environment(struct hold_child *c, char **envp, const char *hook) {
	static const char python[] = "PYTHONPATH=";
	size_t n = 0, at = sizeof python - 1;
	int found = 0, ok = 1;
	while (envp[n] != NULL) n++;
	if ((c->envp = calloc(n + 3, sizeof(char *))) == NULL) return 0;
	memcpy(c->envp, envp, n * sizeof(char *));
	if (hook == NULL) return 1;
	for (size_t i = 0; i < n; i++) {
		if (strncmp(envp[i], python, at) != 0) continue;
		ok &= asprintf(&c->envp[i], "%s%s%s%s", python, hook, envp[i][at] != 0 ? ":" : "", envp[i] + at) > 0;
		found = 1;
	}
	ok &= asprintf(&c->envp[n++], "RSSWARDEN_DIR=%s", p->dir) > 0;
	return found ? ok : ok & (asprintf(&c->envp[n], "%s%s", python, hook) > 0);
}

// make_shell is argv for /bin/sh, see try_file.
static int make_shell(struct hold_child *c) {
	int n = 0;
	while (c->argv[n] != NULL) n++;
	if ((c->shell = calloc((size_t)n + 2, sizeof(char *))) == NULL) return 0;
	c->shell[0] = "/bin/sh";
	c->shell[1] = "";
	memcpy(c->shell + 2, c->argv + 1, (size_t)(n - 1) * sizeof(char *));
	return 1;
}

// hold_at_once says that the command may be started at once, and fills in how.
int hold_at_once(struct hold_child *c, char **argv, char **command, char **envp) {
	int hooked = 1, job = in_job();
	char *hook = NULL, *mounts = NULL;
	if (!hold_options(argv, command, &hooked) || job < 0 || hold_other_site != NULL) return 0;
	for (char **e = envp; *e != NULL; e++)
		if (strncmp(*e, "RSSWARDEN", 9) == 0 && strncmp(*e, "RSSWARDEN_RUNTIME=", 18) != 0 && strncmp(*e, FAULT, sizeof FAULT - 1) != 0) return 0;
	if (access("/etc/rsswarden.toml", F_OK) == 0 || errno != ENOENT || (mounts = malloc(MOUNTS)) == NULL) return 0;
	c->argv = command, c->given = envp;
	int sure = read_file("/proc/self/mountinfo", mounts, MOUNTS) && !program_served(mounts) && find_paths(c, *command) && make_shell(c) &&
		(!hooked || ((hook = find_hook(mounts)) != NULL && (p->dir = name_run_directory(mounts)) != NULL)) && make_environment(c, envp, hook);
	free(mounts);
	if (!sure) p->dir = NULL;
	p->subreaper = !job;
	return sure;
}

// hold_asked_for fills in what the verdict says of the command, with pointers into it. It
// lies in memory that is shared with our own child.
int hold_asked_for(struct hold_verdict *v, struct hold_child *c, char **argv, char **envp) {
	char *s = (char *)(v + 1) + (size_t)v->nenv * sizeof(int32_t);
	int32_t *index = (int32_t *)(v + 1);
	c->argv = argv + v->command;
	c->paths = calloc((size_t)v->npaths + 1, sizeof(char *));
	c->envp = calloc((size_t)v->nenv + 1, sizeof(char *));
	p->setup = malloc((size_t)v->setup + 1);
	if (c->paths == NULL || c->envp == NULL || p->setup == NULL || !make_shell(c)) return 0;
	for (int i = 0; i < v->npaths; s += strlen(s) + 1) c->paths[i++] = s;
	for (int i = 0; i < v->nenv; i++) {
		c->envp[i] = index[i] >= 0 ? envp[index[i]] : s;
		if (index[i] < 0) s += strlen(s) + 1;
	}
	c->given = envp;
	memcpy(p->setup, s, (size_t)v->setup);
	p->setup_size = v->setup, p->flush = v->flush_ms, p->nkeep = v->nkeep, p->subreaper = v->subreaper;
	memcpy(p->keep, v->keep, sizeof p->keep);
	return 1;
}
