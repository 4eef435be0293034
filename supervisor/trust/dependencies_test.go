package trust

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
