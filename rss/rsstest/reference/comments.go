package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Comments are what the source of a package says of its declarations.
type Comments struct {
	// Fields has the comments of a struct's fields, by "Type.Field".
	Fields map[string]string
	// Values has the string constants of a named type, in the order of the source.
	Values map[string][]Value
}

// Value is a constant with what its comment says; empty where there is none.
type Value struct{ Name, Value, Says string }

// CommentsOf reads the package in a folder, without its tests.
func CommentsOf(t *testing.T, dir string) *Comments {
	t.Helper()
	c := &Comments{Fields: map[string]string{}, Values: map[string][]Value{}}
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				c.take(g)
			}
		}
	}
	return c
}

func (c *Comments) take(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if body, ok := s.Type.(*ast.StructType); ok {
				c.fields(s.Name.Name, body)
			}
		case *ast.ValueSpec:
			kind, ok := s.Type.(*ast.Ident)
			for i, v := range s.Values {
				lit, isLit := v.(*ast.BasicLit)
				if !ok || !isLit || lit.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					continue
				}
				c.Values[kind.Name] = append(c.Values[kind.Name], Value{s.Names[i].Name, text, says(s.Doc, s.Comment)})
			}
		}
	}
}

// fields takes the comments of a struct. One above a field also documents those below it
// whose names are in it.
func (c *Comments) fields(name string, body *ast.StructType) {
	above := ""
	for _, f := range body.Fields.List {
		if f.Doc != nil {
			above = says(f.Doc)
		}
		for _, n := range f.Names {
			text := says(f.Doc, f.Comment)
			if f.Doc == nil && f.Comment == nil && slices.Contains(words.FindAllString(above, -1), n.Name) {
				text = above
			}
			c.Fields[name+"."+n.Name] = text
		}
	}
}

func says(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		if g != nil {
			all = append(all, strings.Fields(g.Text())...)
		}
	}
	return strings.Join(all, " ")
}

var words = regexp.MustCompile(`[A-Za-z0-9_]+`)

// Renamed puts other names into a text, for whole words: those that a reader of JSON
// knows in the place of Go's. PID, RSS and the like are words of their own, and stay.
func Renamed(text string, names map[string]string) string {
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if names[word] != "" && word != strings.ToUpper(word) {
			return "`" + names[word] + "`"
		}
		return word
	})
}
