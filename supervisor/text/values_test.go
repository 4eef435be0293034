package text

import "testing"

func TestNumbers(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0 s", 40: "40 s", 99: "99 s", 100: "2 min", 120: "2 min", 720: "12 min", 5400: "90 min",
		7200: "2.0 h", 12600: "3.5 h", 864000: "10 d",
	} {
		if got := About(seconds); got != want {
			t.Errorf("About(%v) = %q, want %q", seconds, got, want)
		}
	}
	for _, c := range []struct {
		n         int
		one, want string
	}{
		{0, "rank", "0 ranks"}, {1, "process", "1 process"}, {2, "process", "2 processes"}, {1200, "map", "1,200 maps"},
	} {
		if got := Count(c.n, c.one); got != c.want {
			t.Errorf("Count(%d, %q) = %q, want %q", c.n, c.one, got, c.want)
		}
	}
}
