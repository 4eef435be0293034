#include "hold.h"

#include <string.h>

// alone says whether an option of "run" takes no value. One that is not known
// is thought to take one.
static int alone(const char *name) {
	static const char *const names[] = {"quiet", "dry-run", "trim-private", "alert-comment", "help", "h", "help-all"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i]) == 0) return 1;
	return strchr(name, '=') != NULL;
}

// set takes an argument that is this option, which takes no value but may have one.
static void set(const char *arg, const char *name, int *value) {
	static const char *const off[] = {"=0", "=f", "=F", "=false", "=FALSE", "=False"};
	size_t n = strlen(name);
	if (strncmp(arg, name, n) != 0 || (arg[n] != 0 && arg[n] != '=')) return;
	*value = 1;
	for (size_t i = 0; i < sizeof off / sizeof *off; i++)
		if (strcmp(arg + n, off[i]) == 0) *value = 0;
}

// hold_command returns NULL where there is no command, or help is asked for. It is parsed
// here because the parser proper is behind the runtime; TestCommandInC compares both.
char **hold_command(char **argv, int *quiet) {
	char **a = argv + 2;
	int help = 0, all = 0;
	for (; *a != NULL && **a == '-' && (*a)[1] != 0; a++) {
		if (strcmp(*a, "--") == 0) {
			a++;
			break;
		}
		const char *name = *a + ((*a)[1] == '-' ? 2 : 1);
		set(name, "help", &help);
		set(name, "h", &help);
		set(name, "help-all", &all);
		set(name, "quiet", quiet);
		if (!alone(name) && *++a == NULL) return NULL;
	}
	return *a != NULL && !help && !all ? a : NULL;
}
