package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
)

// behind says of an option of ours that stands behind the command, with a value that it
// can have, that it went to the command: whoever wrote no -- may have meant us. Scripts
// have options of the same names, so it is a question; of what most have nothing is said.
// It returns nothing where a -- says where the command begins.
func behind(args, command []string) string {
	if at := len(args) - len(command); at < 1 || args[at-1] == "--" || filepath.Base(command[0]) == programName {
		return ""
	}
	for i, word := range command[1:] {
		if word == "--" {
			break
		}
		name, value, joined := strings.Cut(word, "=")
		at := slices.IndexFunc(slices.Concat(watchOptions, runOptions), func(o option) bool { return "--"+o.name == name })
		if at < 0 {
			continue
		}
		o := slices.Concat(watchOptions, runOptions)[at]
		written := word
		switch {
		case o.name == "quiet":
			continue
		case joined:
		case o.kind == config.Truth:
			value = "true"
		case i+2 < len(command):
			value = command[i+2]
			written += " " + value
		}
		if value == "" || strings.HasPrefix(value, "-") || o.apply(&supervisor.Settings{}, []string{value}) != nil {
			continue
		}
		if o.name == alertOption {
			written = "--alert URL" // what is secret in it is no business of ours
		}
		return fmt.Sprintf("%s stands behind %s and is left to it; if rsswarden is meant: %s run %s -- %s …; if not, write -- before %s",
			written, command[0], programName, written, command[0], command[0])
	}
	return ""
}
