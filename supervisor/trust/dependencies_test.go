package trust

import (
	"bytes"
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

// TestDependencies: the table of SECURITY.md is go.mod, what the programs link, and the
// licences in the modules.
func TestDependencies(t *testing.T) {
	stated := map[string][]string{}
	for _, row := range tableRows(securityText(t), 5) {
		if row[4] == "" {
			t.Errorf("%s: not said why", row[0])
		}
		stated[row[0]] = row[1:4]
	}
	found := map[string][]string{}
	for _, m := range required(t) {
		var by []string
		for _, program := range []string{"rsswarden", "rsswardend"} {
			if slices.Contains(linkedModules(t, program), m.Path) {
				by = append(by, program)
			}
		}
		if len(by) == 0 {
			by = []string{"neither"}
		}
		found[m.Path] = []string{m.Version, licences(t, m.Dir), strings.Join(by, " and ")}
	}
	if diff := cmp.Diff(found, stated); diff != "" {
		t.Errorf("found -, in SECURITY.md +:\n%s", diff)
	}
}

type goModule struct{ Path, Version, Dir string }

// required are the modules that go.mod names, as they lie in the module cache.
func required(t *testing.T) (all []goModule) {
	t.Helper()
	var mod struct{ Require []goModule }
	goJSON(t, &mod, "mod", "edit", "-json", root+"/go.mod")
	if len(mod.Require) < 20 {
		t.Fatalf("go.mod names %d modules", len(mod.Require))
	}
	for _, m := range mod.Require {
		var here goModule
		// It fetches what no package of ours needs, and nothing else had fetched.
		goJSON(t, &here, "mod", "download", "-json", m.Path+"@"+m.Version)
		all = append(all, here)
	}
	return all
}

func goJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if err == nil {
		err = json.Unmarshal(out, v)
	}
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

var linkedBy = map[string][]string{}

// linkedModules are the modules of which a program links something, built as make does.
func linkedModules(t *testing.T, program string) []string {
	t.Helper()
	if linkedBy[program] == nil {
		out, err := exec.Command("go", "list", "-tags", "urfave_cli_no_docs", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "github.com/rsswarden/rsswarden/cmd/"+program).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		linkedBy[program] = strings.Fields(string(out))
	}
	return linkedBy[program]
}

// pointedAt are the hosts that a URL may name here: readers are sent there, and nothing
// is fetched from them. Modules come by their import paths, packages by apt's sources.
var pointedAt = []string{"github.com", "www.apache.org", "www.w3.org", "go.dev", "pkg.go.dev", "prometheus.io", "no-color.org"}

var (
	urlHost = regexp.MustCompile(`(?i)://(?:[^/\s@"']*@)?([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,})\b`)
	archive = regexp.MustCompile(`(?i)\b(?:debian|ubuntu|fedoraproject|centos|npmjs|pypi|pythonhosted|anaconda|docker|quay|ghcr|crates|rubygems)[.](?:org|com|io)\b|` +
		`\b(?:archive|mirrors?|old-releases|proxy|registry|snapshot|deb|ftp|sum)[.][a-z0-9-]+[.](?:org|com|io|net|dev)\b`)
)

// TestNoArchiveIsNamed: what tests and CI install comes from where this machine's apt and
// Go are set up to get it. No file names an archive, a registry or a proxy.
func TestNoArchiveIsNamed(t *testing.T) {
	files := 0
	endings := [][]byte{[]byte(".org"), []byte(".com"), []byte(".io"), []byte(".net"), []byte(".dev")}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".log") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(b, 0) >= 0 {
			return err
		}
		files++
		for line := range bytes.Lines(b) {
			if !bytes.Contains(line, []byte("://")) && !slices.ContainsFunc(endings, func(e []byte) bool { return bytes.Contains(line, e) }) {
				continue // the expressions are slow
			}
			for _, m := range urlHost.FindAllSubmatch(line, -1) {
				host := strings.ToLower(string(m[1]))
				if !slices.Contains(pointedAt, host) && !strings.HasSuffix(host, ".example") && !strings.HasSuffix(host, ".invalid") {
					t.Errorf("%s names %s", path, host)
				}
			}
			for _, m := range archive.FindAll(line, -1) {
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

// licences are those of the files of a module that hold one, by SPDX.
func licences(t *testing.T, dir string) string {
	t.Helper()
	found := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[licence(string(b))] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

// licence knows a licence by the words that make it that one.
func licence(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\r\t>*", r) }), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("The OpenLDAP Public License Version 2.8"):
		return "OLDAP-2.8"
	case has("Apache License Version 2.0, January 2004"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge") && has("copies or substantial portions"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && (has("Neither the name") || has("may be used to endorse or promote products")):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return "unknown"
}
