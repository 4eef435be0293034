package supervisor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// arenaVariable bounds the arenas of glibc's malloc (mallopt(3)). Each thread
// that allocates gets one of its own else, up to eight for each processor, and
// what is freed in one is of no use to another. Other allocators ignore it.
const arenaVariable = "MALLOC_ARENA_MAX"

// SetArenas returns the environment with what --malloc-arenas asks for. What the
// user's environment had is kept in mind for the event.
func (s *Settings) SetArenas(env []string) []string {
	if s.Arenas == 0 {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		value, ok := strings.CutPrefix(v, arenaVariable+"=")
		if ok {
			s.ArenasBefore = value
		}
		return ok
	})
	return append(env, arenaVariable+"="+strconv.Itoa(s.Arenas))
}

// sayArenas tells of it, once a run.
func (w *watcher) sayArenas() {
	s := &w.Settings
	if s.Arenas == 0 || w.Attached != nil || w.Link.Begin().Attempt > 1 {
		return
	}
	before, _ := strconv.ParseInt(s.ArenasBefore, 10, 64)
	text := fmt.Sprintf("--malloc-arenas: the command has %s=%d in its environment", arenaVariable, s.Arenas)
	if s.ArenasBefore != "" {
		text += ", in the place of " + s.ArenasBefore
	}
	w.cured(event.Cure{Remedy: event.RemedyArenas, OK: true, Before: before, After: int64(s.Arenas)}, text)
}
