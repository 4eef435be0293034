// The SPANK plugin of rsswarden: starts the command of every task under rsswarden, for users
// who type nothing. docs/site.md says how to build and enable it. Line of plugstack.conf:
//
//	optional /usr/lib64/slurm/rsswarden_spank.so [bin=/usr/bin/rsswarden] [default=on|off]
//	         [steps=batch,srun,interactive] [maxtasks=64] [minmem=1024]
//
// bin must be an ELF program that all nodes have; Slurm before 23.11 also executes BIN-task, a
// link to it. A step with more than maxtasks tasks on a node, or with less than minmem MiB for
// each of them, runs bare: Slurm counts what rsswarden takes as the job's. So does any task
// for which something is missing or unknown: the log of slurmd says why, the user sees nothing.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(rsswarden, 1)

// For rsswarden doctor, which says when it does not fit: Slurm wants its own major version.
#define STRING(x) #x
#define NUMBER(x) STRING(x)
const char rsswarden_built_for[] = "rsswarden for Slurm " NUMBER(SLURM_VERSION_NUMBER);

// From Slurm 23.11 on.
#pragma weak spank_prepend_task_argv
extern spank_err_t spank_prepend_task_argv(spank_t, int, const char *[]);

// Steps without a number, from slurm/slurm.h, of which only these have users' commands.
enum { STEP_FIRST_SPECIAL = 0xfffffff0u, STEP_BATCH = 0xfffffffbu, STEP_INTERACTIVE = 0xfffffffau };

static const char *bin = "/usr/bin/rsswarden", *steps = "batch,srun,interactive";
static int site_default = 1, asked = -1;
static long maxtasks = 64, minmem = 1024;

static int on_or_off(const char *value)
{
	return value && !strcmp(value, "on") ? 1 : value && !strcmp(value, "off") ? 0 : -1;
}

static int choose(int val, const char *value, int remote)
{
	(void)val, (void)remote;
	if ((asked = on_or_off(value)) >= 0)
		return 0;
	slurm_error("--rsswarden takes on or off");
	return -1;
}

static struct spank_option option = {
	"rsswarden", "on|off", "keep the job in its memory limit with rsswarden; off runs the command bare", 1, 0, choose
};

// number is 1 where the argument has this name.
static int number(const char *arg, const char *name, long *to, const char **odd)
{
	char *end;
	size_t n = strlen(name);
	if (strncmp(arg, name, n))
		return 0;
	long value = strtol(arg + n, &end, 10);
	if (end == arg + n || *end || value < 0)
		*odd = "no number";
	else
		*to = value;
	return 1;
}

// Called in srun, sbatch, salloc, slurmd and slurmstepd.
int slurm_spank_init(spank_t sp, int ac, char **av)
{
	for (int i = 0; i < ac; i++) {
		const char *odd = NULL;
		if (!strncmp(av[i], "bin=", 4))
			bin = av[i] + 4;
		else if (!strncmp(av[i], "steps=", 6))
			steps = av[i] + 6;
		else if (!strncmp(av[i], "default=", 8) && on_or_off(av[i] + 8) >= 0)
			site_default = on_or_off(av[i] + 8);
		else if (!number(av[i], "maxtasks=", &maxtasks, &odd) && !number(av[i], "minmem=", &minmem, &odd))
			odd = "not known";
		if (odd && spank_remote(sp) == 1) // else the user would see it
			slurm_info("rsswarden: %s in plugstack.conf is %s", av[i], odd);
	}
	spank_option_register(sp, &option); // where a context has no options there is nothing to do
	return 0;
}

// A copy that is longer than the buffer is none of the values that are looked for.
static int is(spank_t sp, const char *name, const char *value)
{
	char have[16];
	return spank_getenv(sp, name, have, sizeof have) == ESPANK_SUCCESS && !strcmp(have, value);
}

static int is_set(spank_t sp, const char *name)
{
	char have[1];
	return spank_getenv(sp, name, have, sizeof have) != ESPANK_ENV_NOEXIST;
}

static int executable(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

// The section headers are the last bytes of a program: one that was copied in part lacks them.
static int whole(const char *path)
{
	Elf64_Ehdr h;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC), ok = 0;
	if (fd < 0)
		return 0;
	if (pread(fd, &h, sizeof h, 0) == sizeof h && !fstat(fd, &st))
		ok = !memcmp(h.e_ident, ELFMAG, SELFMAG) && h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_shoff &&
		     (uint64_t)st.st_size >= h.e_shoff + (uint64_t)h.e_shnum * h.e_shentsize;
	close(fd);
	return ok;
}

// Slurm looks for the command after us and says what is wrong with it: that is left to it.
static int found(spank_t sp, const char *command)
{
	static char path[65536], file[4096];
	if (strchr(command, '/'))
		return executable(command);
	if (spank_getenv(sp, "PATH", path, sizeof path) != ESPANK_SUCCESS)
		return 0;
	for (char *save, *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save))
		if (snprintf(file, sizeof file, "%s/%s", dir, command) < (int)sizeof file && executable(file))
			return 1;
	return 0;
}

static const char *kind(uint32_t step)
{
	return step == STEP_BATCH ? "batch" : step == STEP_INTERACTIVE ? "interactive" : step < STEP_FIRST_SPECIAL ? "srun" : "?";
}

// why_bare says why a task must not be wrapped; NULL where it may be, "" where nobody asks why.
static const char *why_bare(spank_t sp, char **argv)
{
	uint32_t step = 0, tasks = 0;
	uint64_t mem = 0; // MiB of the step on this node; 0 where Slurm has no limit
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (asked == 0 || (asked < 0 && !site_default) || is(sp, "RSSWARDEN", "off"))
		return "";
	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS || !strstr(steps, kind(step)))
		return "";
	if (!strncmp(name, "rsswarden", 9)) // the user's own run
		return "";
	if (spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS || !tasks)
		return "the number of its tasks is not known";
	if (maxtasks && tasks > maxtasks)
		return "there are more than maxtasks tasks on this node";
	if (spank_get_item(sp, S_STEP_ALLOC_MEM, &mem) != ESPANK_SUCCESS || (mem && mem / tasks < (uint64_t)minmem))
		return "there is less than minmem for each task";
	// From 23.02 on what is prepended is run inside the container, where there is no rsswarden.
	if (is_set(sp, "SLURM_CONTAINER") || is_set(sp, "SLURM_CONTAINER_ID"))
		return "it is in a container";
	// --bcast=DIR/, which Slurm completes later, and --multi-prog, whose argv[0] is its file.
	if (!*name || !found(sp, argv[0]))
		return "its command is not a file that can be executed";
	return NULL;
}

// Called in the child that becomes the task, which has the user's IDs, cgroup and namespaces.
// Executing rsswarden here would be too early: TaskProlog, limits and TMPDIR come later.
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	int argc = 0;
	char **argv = NULL, *task = NULL;
	(void)ac, (void)av;
	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 || !argv || !argv[0] || !*argv[0])
		return 0;
	const char *why = why_bare(sp, argv), *pre[] = { bin, "run", "--" };
	if (why && *why)
		slurm_verbose("rsswarden: a task runs bare: %s", why);
	if (why)
		return 0;
	if (!executable(bin))
		slurm_info("rsswarden: a task runs bare: bin=%s is no file that can be executed", bin);
	else if (!whole(bin))
		slurm_info("rsswarden: a task runs bare: bin=%s is not a whole ELF program", bin);
	else if (spank_prepend_task_argv) {
		if (spank_prepend_task_argv(sp, 3, pre) == ESPANK_SUCCESS)
			spank_setenv(sp, "RSSWARDEN_BY", "site", 1);
	} else if (asprintf(&task, "%s-task", bin) < 0 || !executable(task)) // the array cannot grow, but its first word may be another
		slurm_info("rsswarden: a task runs bare: %s-task is no file that can be executed", bin);
	else if (spank_setenv(sp, "RSSWARDEN_ARGV0", argv[0], 1) == ESPANK_SUCCESS)
		argv[0] = task;
	return 0;
}
