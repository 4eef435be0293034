package guest

import (
	"path/filepath"
	"testing"
)

// TestDynamicProgram: a program of this machine's runs in a guest, with all that
// it needs.
func TestDynamicProgram(t *testing.T) {
	files := map[string]string{}
	if err := AddDynamic(files, "/", "/usr/bin/sort"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/usr/bin/sort", "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libc.so.6"} {
		if !filepath.IsAbs(files[name]) {
			t.Errorf("%s is %q of %v", name, files[name], files)
		}
	}
	if err := AddDynamic(files, "/", "/usr/bin/none-such"); err == nil {
		t.Error("a program that is not there was added")
	}
}
