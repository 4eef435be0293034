package slurm

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		version string
		release Release
		want    bool
	}{
		{"26.05.3", Release{26, 5, 3}, true},
		{"26.05.10", Release{26, 5, 3}, true},
		{"26.11.0", Release{26, 5, 3}, true},
		{"26.05.2", Release{26, 5, 3}, false},
		{"26.05.4-pre", Release{26, 5, 3}, true},
		{"26.05", Release{26, 5, 3}, false},
		{"26.05", Release{26, 5, 0}, true},
		{"25.11.7", Release{26, 5, 0}, false},
		{"", Release{}, false},
		{"slurm", Release{}, false},
	} {
		if got := c.release.In(c.version); got != c.want {
			t.Errorf("%q is at least %v: %v", c.version, c.release, got)
		}
	}
}

func TestFindVersion(t *testing.T) {
	for _, c := range []struct{ says, want string }{
		{"slurm 26.05.5\n", "26.05.5"},
		{"slurm-wlm 24.11.5\n", "24.11.5"},
		{"slurm-wlm 22.05.8", "22.05.8"},
		{"", ""},
		{"\n", ""},
		{"slurm unknown\n", ""},
	} {
		got, err := FindVersion(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			if !slices.Equal(args, []string{"--version"}) {
				return nil, errors.ErrUnsupported
			}
			return []byte(c.says), nil
		})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("of %q: %q, %v", c.says, got, err)
		}
	}
	if _, err := FindVersion(t.Context(), func(context.Context, ...string) ([]byte, error) { return nil, exec.ErrNotFound }); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

// Of each change one span holds at a time, and what was run was run in its span.
func TestChanges(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Changes {
		if names[c.What] || len(c.Spans) == 0 {
			t.Errorf("%q is there twice, or says nothing", c.What)
		}
		names[c.What] = true
		for i, s := range c.Spans {
			if i > 0 && slices.Compare(s.From[:], c.Spans[i-1].From[:]) <= 0 {
				t.Errorf("%s: %v comes after %v", c.What, s.From, c.Spans[i-1].From)
			}
			if i > 0 && s.Holds == c.Spans[i-1].Holds {
				t.Errorf("%s: %v changes nothing", c.What, s.From)
			}
			for version := range strings.SplitSeq(s.Run, ", ") {
				if s.Run != "" && c.At(version) != s {
					t.Errorf("%s: %s was run, and is not of the span from %v", c.What, version, s.From)
				}
			}
			if i > 0 && c.At(s.From.String()) != s {
				t.Errorf("%s: at %v holds %+v", c.What, s.From, c.At(s.From.String()))
			}
		}
	}
}

// What is decided by the version is what the list says of it.
func TestChangesAgree(t *testing.T) {
	for version, want := range map[string]bool{"22.05.8": false, "25.11.7": false, "26.05.2": false, "26.05.3": true, "26.05.5": true, "26.11.0": true} {
		e := Enforcement{Known: true, OverMemoryKill: true, Gather: "linux", SelectMemory: true, SelectTypeParameters: "CR_Core_Memory", Version: version}
		kills, known := e.JobKill()
		if said := strings.Contains(Changes[0].At(version).Holds, "cancels the whole job"); !known || kills != want || said != want {
			t.Errorf("%s: slurmd kills: %v, known %v; said %v, want %v", version, kills, known, said, want)
		}
	}
}
