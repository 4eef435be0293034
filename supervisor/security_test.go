package supervisor

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tableRows are the rows of the Markdown tables of a text that have so many cells, without
// heads.
func tableRows(text string, cells int) (rows [][]string) {
	head := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			head = true
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if strings.HasPrefix(row[0], "---") {
			head = false
		} else if !head && len(row) == cells {
			rows = append(rows, row)
		}
	}
	return rows
}

// testName is a test as documents name it: `supervisor/loader.TestOwner`.
var testName = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")

// testNamed says why there is no such test in a folder of the module that is run each time.
func testNamed(folder, name string) error {
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte("\nfunc "+name+"(")) {
			continue
		}
		if bytes.HasPrefix(b, []byte("//go:build endurance")) {
			return errors.New("it is run by make endurance alone")
		}
		return nil
	}
	return errors.New("there is none of that name")
}

func securityText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSecurityClaims: each claim of SECURITY.md names tests that show it, and they are
// there.
func TestSecurityClaims(t *testing.T) {
	text := securityText(t)
	claims := tableRows(text, 2)
	if len(claims) < 40 {
		t.Fatalf("%d claims", len(claims))
	}
	for _, claim := range claims {
		named := testName.FindAllStringSubmatch(claim[1], -1)
		if len(named) == 0 || len(named) != len(strings.Fields(claim[1])) {
			t.Errorf("not shown by tests alone: %q", claim)
		}
	}
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		if err := testNamed(m[1], m[2]); err != nil {
			t.Errorf("%s.%s: %v", m[1], m[2], err)
		}
	}
	// A parser that is new is of somebody's input.
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(folder, "examples") || folder == "slurm/slurmtest" {
			continue // nobody's but our own
		}
		files, _ := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`).FindAllSubmatch(b, -1) {
				if name := "`" + folder + "." + string(m[1]) + "`"; !strings.Contains(text, name) {
					t.Errorf("SECURITY.md does not name %s", name)
				}
			}
		}
	}
}

// startedBy are the places that start one. A shell is started by the two that say so.
var startedBy = map[string][]string{
	"supervisor/action/program.go": {`"/bin/sh" "-c" p.Command`}, // exec=, the user's own text
	"supervisor/requeueput.go":     {`"/bin/sh" "-c" putOutside`},
	"supervisor/alert/program.go":  {"p.Path SendCommand"},
	"slurm/find.go":                {`"scontrol"`},
	"slurm/requeuesteps.go":        {`"scontrol"`},
	"cmd/rsswarden/report.go":      {"name"}, // sacct, scontrol
	"cmd/rsswarden/fanout.go":      {`"srun"`},
	"cmd/rsswarden/records.go":     {`"/proc/self/exe" exportCommand`},
	"cmd/rsswarden/doctortry.go":   {"path", "cat"}, // Python, ourselves
}

// TestProgramsStarted: what is started where is known, and putOutside is a constant, so
// that a shell never reads what somebody else has written.
func TestProgramsStarted(t *testing.T) {
	got := map[string][]string{}
	constant := false
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(folder, "examples") || folder == "cmd/bench" || strings.HasSuffix(folder, "test") || strings.HasPrefix(folder, "rss/rsstest") {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			file := folder + "/" + name
			set := token.NewFileSet()
			src, err := os.ReadFile("../" + file)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := parser.ParseFile(set, file, src, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
					for _, s := range d.Specs {
						constant = constant || slices.ContainsFunc(s.(*ast.ValueSpec).Names, func(id *ast.Ident) bool { return id.Name == "putOutside" })
					}
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				args := call.Args
				switch x, _ := f.X.(*ast.Ident); {
				case x == nil:
					return true
				case x.Name == "exec" && f.Sel.Name == "CommandContext":
					args = args[1:]
				case x.Name == "exec" && f.Sel.Name == "Command":
				case slices.Contains([]string{"os.StartProcess", "syscall.ForkExec", "syscall.StartProcess", "syscall.Exec", "unix.Exec"}, x.Name+"."+f.Sel.Name):
				default:
					return true
				}
				var words []string
				for _, a := range args[:min(3, len(args))] {
					word := string(src[set.Position(a.Pos()).Offset:set.Position(a.End()).Offset])
					if strings.HasPrefix(word, "args") || strings.Contains(word, "(") || word == "dir" {
						break
					}
					words = append(words, word)
				}
				got[file] = append(got[file], strings.Join(words, " "))
				return true
			})
		}
	}
	if diff := cmp.Diff(startedBy, got); diff != "" {
		t.Errorf("known -, found +:\n%s", diff)
	}
	if !constant {
		t.Error("putOutside is no constant")
	}
}
