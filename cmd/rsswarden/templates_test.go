package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestIssueTemplates: the forms for issues can be read, ask for each thing once, and what
// they have people type is what the program knows.
func TestIssueTemplates(t *testing.T) {
	files, err := filepath.Glob("../../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	const read = `import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)`
	typed := 0
	for _, name := range files {
		out, err := exec.Command(python, "-c", read, name).Output()
		if err != nil {
			t.Skipf("%s has no YAML: %v", python, err)
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
		}
		if err := json.Unmarshal(out, &form); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		seen := map[string]bool{}
		for _, b := range form.Body {
			if text := b.Type == "markdown"; text != (b.Attributes.Value != "") || text == (b.Attributes.Label != "") || !text && (b.ID == "" || seen[b.ID]) {
				t.Errorf("%s: %+v", name, b)
			}
			seen[b.ID] = true
		}
		if filepath.Base(name) != "config.yml" && (form.Name == "" || form.Description == "" || len(seen) == 0) {
			t.Errorf("%s: %+v", name, form)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`rsswarden ([^`]*)`").FindAllStringSubmatch(string(b), -1) {
			words, _, _ := strings.Cut(strings.ReplaceAll(m[1], "JOBID", ""), " -- ")
			if out, errs, err := output(append(append([]string{binary}, strings.Fields(words)...), "--help")); err != nil || out == "" {
				t.Errorf("%s: rsswarden %s: %v\n%s", name, m[1], err, errs)
			}
			typed++
		}
	}
	if typed < 6 {
		t.Errorf("only %d lines were typed", typed)
	}
}
