// Package docs holds the documents to what they refer to.
package docs

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read returns the file of that path below the root of the module.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documents are all that people read, by path below the root of the module.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/*.md", "docs/reference/*.md"} {
		names, _ := filepath.Glob(filepath.Join("..", pattern))
		for _, name := range names {
			path := strings.TrimPrefix(name, "../")
			all[path] = read(t, path)
		}
	}
	if len(all) < 15 {
		t.Fatalf("documents: %v", slices.Sorted(maps.Keys(all)))
	}
	return all
}

var (
	linkShown    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingShown = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are those that GitHub makes of the headings of a document.
func anchors(document string) map[string]bool {
	known := map[string]bool{"": true}
	for _, m := range headingShown.FindAllStringSubmatch(document, -1) {
		known[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return known
}

// TestLinks: what documents link to exists, and the README links to each of them.
func TestLinks(t *testing.T) {
	all := documents(t)
	led := map[string]bool{"README.md": true, "SECURITY.md": true, "CONTRIBUTING.md": true}
	for name, text := range all {
		for _, m := range linkShown.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			to := name
			if path != "" {
				to = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join("..", to)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			} else if strings.HasSuffix(to, ".md") && !anchors(read(t, to))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
			led[to] = led[to] || name == "README.md"
		}
	}
	for name := range all {
		if !led[name] {
			t.Errorf("the README does not link to %s", name)
		}
	}
}

var (
	testDeclared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	testShown    = regexp.MustCompile("`((?:[a-z0-9/]+\\.)?(?:Test|Fuzz)[A-Z]\\w*)[^`]*`")
	makeShown    = regexp.MustCompile("(?m)(?:^    |`)make ([a-z]+)")
	folderShown  = regexp.MustCompile(`(?m)(?:^    |` + "`" + `)(?:go|python) [^` + "`\n" + `]*?\./([a-z/]+)`)
	wordShown    = regexp.MustCompile(`(?m)^\| [^|]+ \| ([a-z_/]+\.go) \| ([A-Za-z]+) \|$`)
)

// TestReferences: tests, make targets, packages, files and words in them that documents
// name exist.
func TestReferences(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testDeclared.FindAllStringSubmatch(string(b), -1) {
			tests[m[1]], tests[strings.TrimPrefix(filepath.Dir(path), "../")+"."+m[1]] = true, true
		}
		return err
	})
	if err != nil || len(tests) < 2000 {
		t.Fatalf("%d names of tests, %v", len(tests), err)
	}
	makefile := read(t, "Makefile")
	found := 0
	each := func(name, text string, shown *regexp.Regexp, is func(m []string) bool) {
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			if found++; !is(m) {
				t.Errorf("%s refers to %q, which does not exist", name, m[0])
			}
		}
	}
	for name, text := range documents(t) {
		each(name, text, testShown, func(m []string) bool { return tests[m[1]] })
		each(name, text, makeShown, func(m []string) bool { return strings.Contains(makefile, "\n"+m[1]+":") })
		each(name, text, folderShown, func(m []string) bool {
			files, _ := filepath.Glob(filepath.Join("..", m[1], "*.go"))
			return len(files) > 0
		})
		each(name, text, wordShown, func(m []string) bool {
			b, err := os.ReadFile(filepath.Join("..", m[1]))
			return err == nil && strings.Contains(string(b), m[2])
		})
	}
	if found < 250 {
		t.Errorf("only %d references found", found)
	}
}

// TestDependencies: the table of SECURITY.md has the modules of go.mod, in these
// versions, with their licences in the modules and the programs that link
// them.
func TestDependencies(t *testing.T) {
	type row struct{ version, licences, linked string }
	stated, want := map[string]row{}, map[string]row{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+\.\S+/\S+) \| (v\S+) \| ([^|]+) \| ([a-z ]+) \| [^|]+ \|$`).FindAllStringSubmatch(read(t, "SECURITY.md"), -1) {
		stated[m[1]] = row{m[2], m[3], m[4]}
	}
	goRun := func(args ...string) []byte {
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	linked := func(program string) []string {
		return strings.Fields(string(goRun("list", "-tags", "urfave_cli_no_docs", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "github.com/rsswarden/rsswarden/cmd/"+program)))
	}
	warden, wardend := linked("rsswarden"), linked("rsswardend")
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(goRun("mod", "edit", "-json", "../go.mod"), &mod); err != nil {
		t.Fatal(err)
	}
	for _, m := range mod.Require {
		by := "neither"
		switch a, b := slices.Contains(warden, m.Path), slices.Contains(wardend, m.Path); {
		case a && b:
			by = "rsswarden and rsswardend"
		case a:
			by = "rsswarden"
		case b:
			by = "rsswardend"
		}
		var here struct{ Dir string }
		if err := json.Unmarshal(goRun("mod", "download", "-json", m.Path+"@"+m.Version), &here); err != nil {
			t.Fatal(err)
		}
		want[m.Path] = row{m.Version, licences(t, here.Dir), by}
	}
	if diff := cmp.Diff(want, stated, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("go.mod and the programs -, SECURITY.md +:\n%s", diff)
	}
}

// licences are those that the files of a module hold, by SPDX, known by their words.
func licences(t *testing.T, dir string) string {
	t.Helper()
	known := []struct{ licence, words string }{
		{"OLDAP-2.8", "The OpenLDAP Public License Version 2.8"},
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"MIT", "Permission is hereby granted, free of charge"},
		{"BSD-3-Clause", "Neither the name"},
		{"BSD-3-Clause", "may be used to endorse or promote products"},
		{"BSD-3-Clause", "may not be used to endorse or promote products"},
		{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
		{"unknown", ""},
	}
	found := map[string]bool{}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range names {
		if !regexp.MustCompile(`(?i)^(LICEN|COPYING)`).MatchString(filepath.Base(name)) {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.FieldsFunc(string(b), func(r rune) bool { return strings.ContainsRune(" \n\r\t>*", r) }), " ")
		i := slices.IndexFunc(known, func(k struct{ licence, words string }) bool { return strings.Contains(text, k.words) })
		found[known[i].licence] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

// TestNoArchiveIsNamed: tests and CI install from where this machine's apt and Go are set
// up to get it. No file names an archive, a registry or a proxy, and URLs lead only to
// hosts that readers are sent to.
func TestNoArchiveIsNamed(t *testing.T) {
	pointedAt := regexp.MustCompile(`^(github\.com|www\.apache\.org|www\.w3\.org|go\.dev|pkg\.go\.dev|prometheus\.io|no-color\.org|.*\.example|.*\.invalid)$`)
	urlHost := regexp.MustCompile(`(?i)://(?:[^/\s@"']*@)?([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,})\b`)
	archive := regexp.MustCompile(`(?i)\b(?:debian|ubuntu|fedoraproject|centos|npmjs|pypi|pythonhosted|anaconda|docker|quay|ghcr|crates|rubygems)[.](?:org|com|io)\b|` +
		`\b(?:archive|mirrors?|old-releases|proxy|registry|snapshot|deb|ftp|sum)[.][a-z0-9-]+[.](?:org|com|io|net|dev)\b`)
	perhaps := regexp.MustCompile(`://|\.(?:org|com|io|net|dev)`)
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".log") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || slices.Contains(b, 0) {
			return err
		}
		files++
		for line := range strings.Lines(string(b)) {
			if !perhaps.MatchString(line) {
				continue // the other expressions are slow
			}
			for _, m := range urlHost.FindAllStringSubmatch(line, -1) {
				if !pointedAt.MatchString(strings.ToLower(m[1])) {
					t.Errorf("%s names %s", path, m[1])
				}
			}
			for _, m := range archive.FindAllString(line, -1) {
				t.Errorf("%s names %s", path, m)
			}
		}
		return nil
	})
	if err != nil || files < 500 {
		t.Errorf("%d files were read: %v", files, err)
	}
	for _, named := range []string{"deb.debian" + ".org", "ubuntu" + ".com", "GOPROXY=https://proxy" + ".golang.org", "npmjs" + ".org"} {
		if !archive.MatchString(named) {
			t.Errorf("%s is not found", named)
		}
	}
}
