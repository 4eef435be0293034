package reference

import (
	"os"
	"testing"
)

func TestPage(t *testing.T) {
	p := New("Things", "See [more](more.md).")
	p.Section("One")
	p.Text("A rule is free<SIZE, as in `free<2G`.")
	p.Term("--a SIZE", "First,\nin two lines.")
	p.Term("--b", "Second.")
	p.Table([]string{"name", "says"}, [][]string{{"a|b", "two\nlines"}})
	const want = "<!-- made from the code by `make reference`; change it there -->\n\n# Things\n\nSee [more](more.md).\n\n## One\n\n" +
		"A rule is free\\<SIZE, as in `free<2G`.\n\n- `--a SIZE`: First, in two lines.\n- `--b`: Second.\n\n" +
		"| name | says |\n|---|---|\n| a\\|b | two lines |\n"
	if got := p.String(); got != want {
		t.Errorf("it reads\n%s\nwant\n%s", got, want)
	}
}

// TestComments: a comment documents the fields that it is above or behind, and those below
// that it names.
func TestComments(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a.go", []byte(`package a
// T is a thing.
type T struct {
	// Low and High bound it; nil without one.
	Low  *int
	High *int
	None int
	PID  int // of the Low one, /proc/PID
}
type Kind string
const (
	One Kind = "one" // the first
	// Two is
	// the second.
	Two Kind = "two"

	// Those below have none.

	Three Kind = "three"
)
`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := CommentsOf(t, dir)
	for name, want := range map[string]string{
		"T.Low": "Low and High bound it; nil without one.", "T.High": "Low and High bound it; nil without one.", "T.None": "", "T.PID": "of the Low one, /proc/PID",
	} {
		if got := c.Fields[name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	values := c.Values["Kind"]
	if len(values) != 3 || values[0] != (Value{"One", "one", "the first"}) || values[1].Says != "Two is the second." || values[2].Says != "" {
		t.Errorf("%+v", values)
	}
	if got, want := Renamed(c.Fields["T.PID"], map[string]string{"Low": "low_bytes", "PID": "pid"}), "of the `low_bytes` one, /proc/PID"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
