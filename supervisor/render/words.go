package render

import (
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// enforced says what the enforcer of a limit does.
func enforced(l *event.Limit) string {
	who, _, _ := strings.Cut(l.Enforcer, ",")
	switch {
	case l.Name.Row().Acts != "":
		return l.Name.Row().Acts
	case l.ByJobSum() && who != "":
		return who + " cancels the job on "
	case l.Name.Row().Kills:
		if who == "" {
			return "kills on "
		}
		return who + " kills on "
	case who != "":
		return who + " on "
	}
	return "held against "
}

// against says who compares what with a limit, and where the limit was read.
func against(l *event.Limit) string {
	text := enforced(l) + l.Compared()
	if l.LimitSource != "" {
		text += "; limit from " + l.Place()
	}
	return text
}

// short is a cgroup directory in a sentence: "/…/job_12".
func short(dir string) string {
	names := strings.Split(strings.Trim(dir, "/"), "/")
	n := len(names) - 1
	for n > 0 && (names[n] == "user" || strings.HasPrefix(names[n], "task_") || strings.HasPrefix(names[n], "step_")) {
		n--
	}
	if n == 0 {
		return dir
	}
	return "/…/" + strings.Join(names[n:], "/")
}

// memArg writes a size as --mem takes it, empty where that takes no such size.
func memArg(b rss.Bytes) string {
	if b == 0 || b%rss.MiB != 0 {
		return ""
	}
	return policy.MemArg(b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
