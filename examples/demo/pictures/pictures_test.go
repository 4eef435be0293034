package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// texts are the texts of a picture, which is well-formed and loads nothing.
func texts(t *testing.T, picture []byte) (all []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if n := e.Name.Local; n == "script" || n == "image" || a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("%s has %s", n, a.Name.Local)
				}
			}
		case xml.CharData:
			if s := string(e); strings.TrimSpace(s) != "" {
				all = append(all, s)
			}
		}
	}
}

func TestStory(t *testing.T) {
	out := "\n== Building\n\n== 1. Without\n$ a\n\n== 2. Bare\n$ b <&>\nexit status 137\n\n== 3. Under\n$ c\n"
	for i := range 30 {
		out += fmt.Sprintf("line %d\n", i)
	}
	out += "\n== The three runs\n  x\n\n== What that run was\nno\n"
	lines := story(out)
	got := strings.Join(lines, "\n")
	want := "# 2. Bare\n$ b <&>\nexit status 137\n\n# 3. Under\n$ c\nline 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\nline 10\nline 11\n…\nline 26\nline 27\nline 28\nline 29\n\n# The three runs\n  x"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if all := texts(t, terminal(lines)); len(all) != len(lines)-2+1 || all[2] != "$ b <&>" {
		t.Errorf("%q", all) // without the empty ones, with the title
	}
	long := texts(t, terminal([]string{strings.Repeat("ä", columns+1)}))
	if want := strings.Repeat("ä", columns-1) + "…"; long[1] != want {
		t.Errorf("%q", long[1])
	}
}

// TestPictures: those that the README shows are of a run that came true.
func TestPictures(t *testing.T) {
	for name, says := range map[string][]string{
		"demo.svg":   {"being killed", "exit status 137", "watching lmdbload", "recycled", "none: killed", "Same data in the same order"},
		"report.svg": {"limit"},
	} {
		b, err := os.ReadFile("../../../docs/pictures/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(texts(t, b), "\n")
		for _, s := range says {
			if !strings.Contains(all, s) {
				t.Errorf("%s does not say %q:\n%s", name, s, all)
			}
		}
	}
}
