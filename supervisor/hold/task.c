#define _GNU_SOURCE
#include "hold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What the SPANK plugin of a site (slurm/plugin) hands over. Its variables are for this process
// alone: a run that the user types further down is not the site's.

static void forget(char **envp, const char *name) {
	char **to = envp;
	size_t n = strlen(name);
	for (char **from = envp; *from != NULL; from++)
		if (strncmp(*from, name, n) != 0 || (*from)[n] != '=') *to++ = *from;
	*to = NULL;
}

// hold_by_site says that the site started this run, and not the user.
int hold_by_site(char **envp) {
	const char *by = getenv("RSSWARDEN_BY");
	int site = by != NULL && strcmp(by, "site") == 0;
	if (by != NULL) forget(envp, "RSSWARDEN_BY");
	return site;
}

// hold_task is rsswarden-task, a link to this program: Slurm before 23.11 lets a plugin replace
// the first word of a command, and not put words before it. It becomes `rsswarden run -- COMMAND`,
// or the command itself where that fails.
void hold_task(int argc, char **argv, char **envp) {
	static const char suffix[] = "rsswarden-task", variable[] = "RSSWARDEN_ARGV0";
	size_t n = strlen(argv[0]), end = sizeof suffix - 1;
	if (n < end || strcmp(argv[0] + n - end, suffix) != 0 || (n > end && argv[0][n - end - 1] != '/')) return;
	char *name = getenv(variable), *program = strndup(argv[0], n - strlen("-task"));
	if (name == NULL || program == NULL) {
		dprintf(2, "error: rsswarden-task is for the SPANK plugin\nhint: rsswarden run -- COMMAND\n");
		_exit(2);
	}
	forget(envp, variable); // name stays where it is
	char **run = calloc((size_t)argc + 4, sizeof *run);
	argv[0] = name;
	if (run != NULL && setenv("RSSWARDEN_BY", "site", 1) == 0) {
		run[0] = program, run[1] = "run", run[2] = "--";
		memcpy(run + 3, argv, (size_t)argc * sizeof *run);
		execv(program, run);
		unsetenv("RSSWARDEN_BY");
	}
	execvp(name, argv);
	int err = errno;
	dprintf(2, "error: cannot start %s: %s\n", name, strerror(err));
	_exit(err == ENOENT || err == ENOTDIR ? 127 : 126);
}
