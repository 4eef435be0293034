package slurm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// shown is what `scontrol show job 46` of Slurm 22.05 prints, with this comment.
func shown(comment string) string {
	text := "JobId=46 JobName=train\n   UserId=me(1000) GroupId=me(1000) MCS_label=N/A\n   JobState=RUNNING Reason=None Dependency=(null)\n" +
		"   Command=/home/me/run.sh\n   WorkDir=/home/me\n"
	if comment != "" {
		text += "   Comment=" + comment + " \n"
	}
	return text + "   StdErr=/home/me/slurm-46.out\n   Power=\n   \n\n"
}

// TestSetComment: ours follows what the user has, in the place of what we wrote
// before.
func TestSetComment(t *testing.T) {
	for name, test := range map[string]struct{ was, text, want string }{
		"none":              {"", "memory 82 %", "rsswarden: memory 82 %"},
		"ours":              {"rsswarden: memory 82 %", "ended", "rsswarden: ended"},
		"theirs":            {"for paper 3", "memory 82 %", "for paper 3; rsswarden: memory 82 %"},
		"both":              {"for paper 3; rsswarden: memory 82 %", "ended", "for paper 3; rsswarden: ended"},
		"of ours in theirs": {"I love rsswarden: it works", "ended", "I love rsswarden: it works; rsswarden: ended"},
		"with signs":        {"a=b c;d", "x", "a=b c;d; rsswarden: x"},
		"quotes in ours":    {"", "a\"b'c\nd", "rsswarden: a b c d"},
		"ours is long":      {"", strings.Repeat("é", 300), "rsswarden: " + strings.Repeat("é", 98) + "..."},
		"the same":          {"rsswarden: ended", "ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var calls [][]string
			err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
				calls = append(calls, args)
				return []byte(shown(test.was)), nil
			}, "46", test.text)
			must(t, err)
			if test.want == "" {
				if len(calls) != 1 {
					t.Errorf("%q", calls)
				}
				return
			}
			if len(calls) != 2 || !slices.Equal(calls[0], []string{"show", "job", "46"}) || !slices.Equal(calls[1], []string{"update", "JobId=46", "Comment=" + test.want}) {
				t.Errorf("%q, want %q", calls, test.want)
			}
		})
	}
}

// TestSetCommentLeaves: what cannot be kept is left alone, and so is what Slurm
// refuses.
func TestSetCommentLeaves(t *testing.T) {
	refused := errors.New("Access/permission denied")
	for name, test := range map[string]struct {
		job, out string
		err      error
		want     error
	}{
		"a long one":       {"46", shown(strings.Repeat("x", maxTheirs+1)), nil, errCommentLong},
		"several lines":    {"46", shown("one\ntwo"), nil, errCommentLines},
		"lines like names": {"46", shown("one\n   \ttwo=3"), nil, errCommentLines},
		"a whole array":    {"46", shown("") + shown("x"), nil, errComment},
		"another job":      {"46", strings.Replace(shown(""), "JobId=46", "JobId=47", 1), nil, errComment},
		"nothing":          {"46", "", nil, errComment},
		"no answer":        {"46", "", refused, refused},
	} {
		t.Run(name, func(t *testing.T) {
			err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
				if args[0] != "show" {
					t.Errorf("%q", args)
				}
				return []byte(test.out), test.err
			}, test.job, "ended")
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
	task := strings.Replace(shown("mine"), "JobId=46 ", "JobId=46 ArrayJobId=44 ArrayTaskId=2 ", 1)
	if got, err := ParseComment([]byte(task), "44_2"); err != nil || got != "mine" {
		t.Errorf("an array task: %q, %v", got, err)
	}
	if err := SetComment(t.Context(), nil, "46; rm", "x"); err == nil {
		t.Error("not a job id")
	}
	err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
		if args[0] == "update" {
			return nil, refused
		}
		return []byte(shown("")), nil
	}, "46", "x")
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}
