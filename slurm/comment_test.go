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
		var calls []string
		must(t, SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			calls = append(calls, strings.Join(args, "|"))
			return []byte(shown(test.was)), nil
		}, "46", test.text))
		want := []string{"show|job|46", "update|JobId=46|Comment=" + test.want}
		if test.want == "" {
			want = want[:1]
		}
		if !slices.Equal(calls, want) {
			t.Errorf("%s: %q, want %q", name, calls, want)
		}
	}
}

// TestSetCommentLeaves: what cannot be kept is left alone, and so is what Slurm
// refuses.
func TestSetCommentLeaves(t *testing.T) {
	refused := errors.New("Access/permission denied")
	for name, test := range map[string]struct {
		out       string
		err, want error
	}{
		"a long one":       {shown(strings.Repeat("x", maxTheirs+1)), nil, errCommentLong},
		"several lines":    {shown("one\ntwo"), nil, errCommentLines},
		"lines like names": {shown("one\n   \ttwo=3"), nil, errCommentLines},
		"a whole array":    {shown("") + shown("x"), nil, errComment},
		"another job":      {strings.Replace(shown(""), "JobId=46", "JobId=47", 1), nil, errComment},
		"nothing":          {"", nil, errComment},
		"no answer":        {"", refused, refused},
	} {
		err := SetComment(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			if args[0] != "show" {
				t.Errorf("%s: %q", name, args)
			}
			return []byte(test.out), test.err
		}, "46", "ended")
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	task := strings.Replace(shown("mine"), "JobId=46 ", "JobId=46 ArrayJobId=44 ArrayTaskId=2 ", 1)
	if got, err := parseComment([]byte(task), "44_2"); err != nil || got != "mine" {
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
