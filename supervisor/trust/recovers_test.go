package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// recovers are the files that take a panic up, each with what is left undone by it.
// In every other goroutine a panic ends the process, which is the row of the table on
// a watcher that panics: half a watcher would be worse than none.
var recovers = map[string]struct {
	what  string
	times int
	tests []string
}{
	"supervisor/control/serve.go": {"a question that is answered by an error", 2, []string{"supervisor/control.TestBadRequests/the source panics"}},
	"supervisor/config/parse.go":  {"a file that cannot be read", 1, []string{"supervisor/config.FuzzParse"}},
	"supervisor/screen/run.go":    {"the screen, once the terminal was given back", 1, []string{"supervisor/screen.TestLeave/a panic of the fetching"}},
	"supervisor/trim/tracer.go":   {"a trim: its thread ends, and so lets go of the process", 1, nil},
	"supervisor/hold/broke.go":    {"the loop, for the last resort; a line of the log", 2, []string{"cmd/rsswarden.TestHolderPanics"}},
	"supervisor/hold/watcher.go":  {"the start of a watcher, which is tried again", 1, []string{"cmd/rsswarden.TestHolderPanics/holder-starter"}},
	"supervisor/hands.go":         {"a trim, which is refused", 1, []string{"supervisor.TestHandsPanic"}},
	"cmd/rsswarden/run.go":        {"the watching, before there is a command", 1, []string{"cmd/rsswarden.TestHolderPanics/run"}},
	"cmd/rsswarden/aside.go":      {"what a file system was asked, such as what loaders would be told", 1, []string{"cmd/rsswarden.TestHolderPanics/prepare"}},
	"cmd/rsswarden/attach.go":     {"an attach; nothing of the job waits for it", 1, []string{"cmd/rsswarden.TestAttachPanics"}},
}

// TestRecovers: nothing else takes a panic up.
func TestRecovers(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "recover" {
					found[filepath.ToSlash(name)]++
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, r := range recovers {
		wantTests(t, file, r.tests)
		if r.what == "" || found[file] != r.times {
			t.Errorf("%s takes up panics in %d places, want %d", file, found[file], r.times)
		}
	}
	for file := range found {
		if recovers[file].times == 0 {
			t.Errorf("%s takes up a panic, and is not in the list", file)
		}
	}
}
