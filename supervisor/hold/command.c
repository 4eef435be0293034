#include "hold.h"
#include "at_once.h"

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

// judged says that an option surely takes a value. Sizes, times and numbers are those that each
// option of the kind takes, in plain digits.
static int judged(const struct run_option *o, const char *v) {
	size_t n = strspn(v, "0123456789"), size = strlen(v);
	const char *unit = v + n;
	int whole = n > 0 && *v != '0' && n <= 6;
	switch (o->kind) {
	case OPTION_WORD:
		for (const char *word = o->words; size > 0; word++) {
			size_t length = strcspn(word, " ");
			if (length == size && memcmp(word, v, size) == 0) return 1;
			if (*(word += length) == 0) return 0;
		}
		return 0;
	case OPTION_NUMBER:
		return whole && n <= 2 && *unit == 0;
	case OPTION_DURATION:
		return whole && ((n <= 2 && strcmp(unit, "s") == 0) || (n == 3 && strcmp(unit, "ms") == 0));
	case OPTION_SIZE:
		return whole && (*unit == 0 || (unit[1] == 0 && (strchr("KMGT", *unit) != NULL || (*unit == '%' && n <= 2))));
	default:
		return 0;
	}
}

// hold_options says that Go surely takes the options before the command, and which way it starts
// the command in: with the hook or without.
int hold_options(char **argv, char **command, int *hooked) {
	static const size_t known = sizeof run_options / sizeof *run_options;
	for (char **a = argv + 2; a < command; a++) {
		if (strcmp(*a, "--") == 0) return a + 1 == command;
		const char *name = *a + ((*a)[1] == '-' ? 2 : 1);
		size_t n = strcspn(name, "="), i = 0;
		while (i < known && (strncmp(run_options[i].name, name, n) != 0 || run_options[i].name[n] != 0)) i++;
		if (i == known) return 0;
		const struct run_option *o = &run_options[i];
		if (o->kind == OPTION_TRUTH) {
			if (name[n] != 0 && strcmp(name + n, "=true") != 0 && strcmp(name + n, "=false") != 0) return 0;
			continue;
		}
		const char *value = name[n] == '=' ? name + n + 1 : a + 1 < command ? *++a : "";
		if (!judged(o, value)) return 0;
		if (strcmp(o->name, "loader") == 0) *hooked = strcmp(value, "off") != 0;
	}
	return 1;
}
