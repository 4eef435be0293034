package rss

import (
	"errors"
	"math"
	"testing"
)

func TestBytesString(t *testing.T) {
	for _, c := range []struct {
		in   Bytes
		want string
	}{
		{0, "0 B"},
		{1023, "1023 B"},
		{KiB, "1.00 KiB"},
		{612 * MiB, "612 MiB"},
		{1023 * MiB, "1023 MiB"},
		{2795 * MiB, "2.73 GiB"},
		{99*GiB + 1000*MiB, "100 GiB"},
		{10*GiB - MiB, "10.0 GiB"},
		{10 * GiB, "10.0 GiB"},
		{3 * TiB, "3.00 TiB"},
		{math.MaxUint64, "16777216 TiB"},
	} {
		if got := c.in.String(); got != c.want {
			t.Errorf("Bytes(%d) = %q, want %q", uint64(c.in), got, c.want)
		}
	}
}

func TestBytesAsTyped(t *testing.T) {
	for _, c := range []struct {
		used, limit Bytes
		typed, want string
	}{
		{1034 * MiB, 1100 * MiB, "1100 MiB", "1034 of 1100 MiB"},
		{1638 * MiB, 3 * GiB, "3.0 GiB", "1.6 of 3.0 GiB"},
		{2881 * MiB, 3000 * MiB, "3000 MiB", "2881 of 3000 MiB"},
		{1894 * MiB, 24064 * MiB, "23.5 GiB", "1.8 of 23.5 GiB"},
		{154 * GiB, 1536 * GiB, "1536 GiB", "154 of 1536 GiB"},
		{3*MiB + MiB/2, 200*MiB + KiB, "200 MiB", "3.5 of 200 MiB"},
		{3 * KiB / 2, 40 * KiB, "40 KiB", "1.5 of 40 KiB"},
		{0, 0, "0 B", "0 of 0 B"},
	} {
		if got := c.limit.Typed(); got != c.typed {
			t.Errorf("Typed: %q, want %q", got, c.typed)
		}
		if got := UsedOf(c.used, c.limit); got != c.want {
			t.Errorf("UsedOf: %q, want %q", got, c.want)
		}
	}
}

func TestBytesArithmetic(t *testing.T) {
	if got := Bytes(5).Sub(3); got != 2 {
		t.Errorf("5 − 3 = %d", got)
	}
	if got := Bytes(3).Sub(5); got != 0 {
		t.Errorf("3 − 5 = %d, want 0: counters read apart may cross", got)
	}
	if got := Bytes(91).Of(100); got != 0.91 {
		t.Errorf("91 of 100 = %v", got)
	}
	if got := Bytes(91).Of(0); got != 0 {
		t.Errorf("91 of 0 = %v, want 0", got)
	}
	for _, c := range []struct {
		b    Bytes
		f    float64
		want Bytes
	}{
		{100, 0.5, 50}, {3, 0.5, 1}, {100, -1, 0}, {100, math.NaN(), 0}, {GiB, math.Inf(1), math.MaxUint64}, {0, 7, 0},
	} {
		if got := c.b.Scale(c.f); got != c.want {
			t.Errorf("%d × %v = %d, want %d", c.b, c.f, got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{
		"3000":  3000 * MiB, // as sbatch: MiB
		"3000M": 3000 * MiB,
		"1":     MiB,
		"4G":    4 * GiB,
		"4GB":   4 * GiB,
		"4gib":  4 * GiB,
		"4 G":   4 * GiB,
		" 4G ":  4 * GiB,
		"1.5G":  1536 * MiB,
		".5K":   512,
		"2T":    2 * TiB,
		"2TiB":  2 * TiB,
		"7KB":   7 * KiB,
		"100B":  100,
		"0":     0,
	} {
		got, err := ParseBytes(in)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "-1G", "+1G", "1..5G", "4X", "4 G B", "1e3", "0x10", "9999999999999T", "inf", "4%"} {
		if got, err := ParseBytes(in); !errors.Is(err, ErrSize) {
			t.Errorf("ParseBytes(%q) = %d, %v; want an error that is ErrSize", in, got, err)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"3000", "1.5G", "4 GiB", "-1", "1..2", "9e9", "1T\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			if !errors.Is(err, ErrSize) {
				t.Fatalf("%q: %v is not ErrSize", s, err)
			}
			return
		}
		if b >= math.MaxInt64 {
			t.Fatalf("%q gives %d, more than any size", s, uint64(b))
		}
		if b.String() == "" {
			t.Fatalf("%q has no text", s)
		}
	})
}
