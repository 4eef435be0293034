package text

import "testing"

func TestBar(t *testing.T) {
	utf, ascii := Style{}, Style{ASCII: true}
	for _, c := range []struct {
		share       float64
		utf8, ascii string
	}{
		{0, "░░░░░░░░░░", ".........."},
		{0.53, "█████▎░░░░", "#####....."},
		{0.999, "█████████▉", "#########."},
		{1.52, "██████████", "##########"},
		{-1, "░░░░░░░░░░", ".........."},
	} {
		if got := utf.Bar(c.share, 10); got != c.utf8 {
			t.Errorf("%v: %q, want %q", c.share, got, c.utf8)
		}
		if got := ascii.Bar(c.share, 10); got != c.ascii {
			t.Errorf("%v: %q, want %q", c.share, got, c.ascii)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"short", 10, "short"},
		{"/home/user/projects/train.py", 13, "/home/…ain.py"},
		{"漢字漢字漢字", 7, "漢字…字"},
		{"abc", 2, "a…"},
		{"abc", 0, ""},
	} {
		got := Middle(c.in, c.columns)
		if got != c.want || Columns(got) > c.columns {
			t.Errorf("%q in %d columns: %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func TestStyleWithoutUTF8(t *testing.T) {
	s := Style{ASCII: true, Color: true}
	if got, want := s.Paint(Red, s.Plain("✖ 1.5 × peak é")), "\x1b[31mx 1.5 x peak ?\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
