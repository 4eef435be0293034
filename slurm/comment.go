package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Comment marks our part of a job's comment; all before it is the user's.
const Comment = "rsswarden: "

const (
	// maxTheirs is the longest comment of a user's that is written again with ours
	// behind it, in bytes, and maxOurs bounds ours.
	maxTheirs = 512
	maxOurs   = 200
)

var (
	errCommentLong  = errors.New("the job's own comment is too long to be kept beside ours")
	errCommentLines = errors.New("the job's own comment has several lines, which cannot be separated from what scontrol prints after it")
	errComment      = errors.New("not the output of scontrol show job")
)

// SetComment writes text behind what the user has in the comment of a job, in the
// place of what we wrote before. It reads the comment first: what is the user's stays.
// job is a number, "12_3" for an array task: the number of an array's last task is also
// that of the array, and means all of its tasks.
func SetComment(ctx context.Context, scontrol func(context.Context, ...string) ([]byte, error), job, text string) error {
	if !isJobID(job) {
		return fmt.Errorf("cannot write the comment of job %q: not a job id", job)
	}
	out, err := scontrol(ctx, "show", "job", job)
	var was string
	if err == nil {
		was, err = parseComment(out, job)
	}
	var is string
	if err == nil {
		is, err = withComment(was, text)
	}
	if err == nil && is != was {
		_, err = scontrol(ctx, "update", "JobId="+job, "Comment="+is)
	}
	if err != nil {
		return fmt.Errorf("cannot write the comment of job %s: %w", job, err)
	}
	return nil
}

// withComment puts text behind what the user has.
func withComment(was, text string) (string, error) {
	theirs := was
	if i := strings.Index(was, Comment); i >= 0 && (i == 0 || strings.HasSuffix(was[:i], "; ")) {
		theirs = strings.TrimSuffix(was[:i], "; ")
	}
	if len(theirs) > maxTheirs {
		return "", errCommentLong
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '"' || r == '\'' || r == '`' || r == '\\' {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxOurs {
		text = strings.ToValidUTF8(text[:maxOurs-3], "") + "..."
	}
	if theirs != "" {
		return theirs + "; " + Comment + text, nil
	}
	return Comment + text, nil
}

// parseComment reads the comment from what `scontrol show job ID` prints, where it
// has a line of its own; empty where there is none.
func parseComment(b []byte, job string) (string, error) {
	if len(b) > maxSaid || strings.Count("\n"+string(b), "\nJobId=") != 1 {
		return "", errComment // none, or several: a comment that begins like a job is none of ours
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if !strings.HasPrefix(lines[0], "JobId=") || !showFields(lines[0]).is(job) {
		return "", errComment
	}
	comment := ""
	for i, line := range lines {
		if text, ok := strings.CutPrefix(line, "   Comment="); ok {
			comment = strings.TrimRight(text, " ")
		}
		if i > 0 && !showLine(line) {
			return "", errCommentLines
		}
	}
	return comment, nil
}

// showLine says that a line begins as each of scontrol's does but the first: three
// spaces, a name and "=".
func showLine(line string) bool {
	rest, ok := strings.CutPrefix(line, "   ")
	if !ok {
		return false
	}
	name, _, ok := strings.Cut(rest, "=")
	if !ok {
		// "   Nodes=..." with -d alone has none; an empty line of spaces does.
		return strings.TrimSpace(rest) == ""
	}
	return name != "" && !strings.ContainsAny(name, " \t")
}
