package memfile

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	text := strings.Repeat("held", 100_000) // more than a pipe takes
	f, err := Of("rsswarden-test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestFillFails(t *testing.T) {
	f, err := os.Open(os.DevNull) // not for writing
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Fill(f, []byte("x")); err == nil {
		t.Error("no error")
	}
	if f.Close() == nil {
		t.Error("it was left open")
	}
}
