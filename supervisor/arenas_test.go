package supervisor

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestSetArenas(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		env     []string
		want    []string
		instead string
	}{
		{"not asked for", 0, []string{"A=1", "MALLOC_ARENA_MAX=4"}, []string{"A=1", "MALLOC_ARENA_MAX=4"}, ""},
		{"new", 2, []string{"A=1"}, []string{"A=1", "MALLOC_ARENA_MAX=2"}, ""},
		{"in the place of another", 1, []string{"MALLOC_ARENA_MAX=4", "A=1"}, []string{"A=1", "MALLOC_ARENA_MAX=1"}, "4"},
		{"twice there", 1, []string{"MALLOC_ARENA_MAX=4", "A=1", "MALLOC_ARENA_MAX=8"}, []string{"A=1", "MALLOC_ARENA_MAX=1"}, "8"},
		{"another that begins so", 1, []string{"MALLOC_ARENA_MAXIMUM=4", "MALLOC_ARENA_MA=4"}, []string{"MALLOC_ARENA_MAXIMUM=4", "MALLOC_ARENA_MA=4", "MALLOC_ARENA_MAX=1"}, ""},
	} {
		s := Settings{Arenas: c.n}
		given := slices.Clone(c.env)
		if got := s.SetArenas(c.env); !slices.Equal(got, c.want) || s.ArenasBefore != c.instead {
			t.Errorf("%s: %q, before %q", c.name, got, s.ArenasBefore)
		}
		if !slices.Equal(c.env, given) {
			t.Errorf("%s: what was given is %q now", c.name, c.env)
		}
	}
}

// TestSayArenas tells of it once, and not again by a watcher that was started
// anew.
func TestSayArenas(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		before  string
		attempt int
		want    string // empty for nothing
		number  float64
	}{
		{"not asked for", 0, "", 1, "", 0},
		{"new", 2, "", 1, "--malloc-arenas: the command has MALLOC_ARENA_MAX=2 in its environment\n", 0},
		{"in the place of another", 2, "8", 1, "MALLOC_ARENA_MAX=2 in its environment, in the place of 8\n", 8},
		{"in the place of a word", 2, "many", 1, "in the place of many\n", 0},
		{"started again", 2, "8", 2, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, func(o *Options) { o.Settings.Arenas, o.Settings.ArenasBefore = c.n, c.before })
			s.holder.begin.Attempt = c.attempt
			s.open(s.holder.begin)
			cures := named(s.events(), event.NameCure)
			if c.want == "" {
				if len(cures) > 0 || strings.Contains(s.stderr(), "--malloc-arenas") {
					t.Errorf("%v\n%s", cures, s.stderr())
				}
				return
			}
			if !strings.Contains(s.stderr(), c.want) || len(cures) != 1 {
				t.Fatalf("%v\n%s", cures, s.stderr())
			}
			if e := cures[0]; e["remedy"] != "malloc-arenas" || e["ok"] != true || e["before"] != c.number || e["after"] != 2.0 {
				t.Errorf("event %v", e)
			}
		})
	}
}
