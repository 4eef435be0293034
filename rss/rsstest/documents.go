package rsstest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Root is the way from a test's folder to that of the module.
func Root(t testing.TB) string {
	t.Helper()
	root := "."
	for _, err := os.Stat(root + "/go.mod"); err != nil; _, err = os.Stat(root + "/go.mod") {
		if root += "/.."; strings.Count(root, "..") > 20 {
			t.Fatal("no module is above")
		}
	}
	return root
}

// Documents returns the README and all of docs as one text: a test checks that a thing is
// documented, not on which page.
func Documents(t testing.TB) string {
	t.Helper()
	root := Root(t)
	more, err := filepath.Glob(root + "/docs/*.md")
	made, _ := filepath.Glob(root + "/docs/reference/*.md")
	if err != nil || len(more) == 0 || len(made) == 0 {
		t.Fatal("no documents: ", err)
	}
	var text strings.Builder
	for _, name := range slices.Concat([]string{root + "/README.md"}, more, made) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
		text.WriteByte('\n')
	}
	return text.String()
}

var (
	fencedBlock  = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	indentedLine = regexp.MustCompile(`(?m)^ {4}(\S.*)$`)
	codeSpan     = regexp.MustCompile("`([^`]+)`")
)

// Shown returns what a document shows to be typed or read: blocks within ```, lines that
// are indented, and what is between backticks in a text, with a space for each line
// end. What one test leaves to another both see alike.
func Shown(document string) (blocks, lines, spans []string) {
	for _, m := range fencedBlock.FindAllStringSubmatch(document, -1) {
		blocks = append(blocks, m[1])
	}
	document = fencedBlock.ReplaceAllString(document, "")
	for _, m := range indentedLine.FindAllStringSubmatch(document, -1) {
		lines = append(lines, m[1])
	}
	for _, m := range codeSpan.FindAllStringSubmatch(document, -1) {
		spans = append(spans, strings.Join(strings.Fields(m[1]), " "))
	}
	return blocks, lines, spans
}

// WorksWith holds a row of the README's table against what tests run: the versions of a
// thing, the last of them Debian sid's. That one may move on before the README does, which
// is logged and no failure.
func WorksWith(t testing.TB, thing string, versions []string) {
	t.Helper()
	last := len(versions) - 1
	fixed := "\n| " + thing + " | " + strings.Join(versions[:last], ", ") + ", "
	switch text := Documents(t); {
	case !strings.Contains(text, fixed):
		t.Errorf("README has no row%s%s", fixed, versions[last])
	case !strings.Contains(text, fixed+versions[last]):
		t.Logf("Debian sid has moved on: the README's row is to be%s%s", fixed, versions[last])
	}
}

// Block returns the first fenced block of the documents behind a line that holds
// the words given.
func Block(t testing.TB, words string) string {
	t.Helper()
	_, rest, found := strings.Cut(Documents(t), words)
	if !found {
		t.Fatalf("the documents do not say %q", words)
	}
	_, rest, _ = strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, "```")
	return text
}
