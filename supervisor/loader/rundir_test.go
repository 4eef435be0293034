package loader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

func TestOwner(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory of no run has an owner")
	}
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	write := func(i identity) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(me)
	if id, lives, err := Owner(dir); id != me.Owner || !lives || err != nil {
		t.Errorf("ours: %v, %v, %v", id, lives, err)
	}
	ended := me
	ended.Owner = rss.ProcID{PID: me.Owner.PID, Start: me.Owner.Start - 1}
	write(ended)
	if id, lives, err := Owner(dir); id != ended.Owner || lives || err != nil {
		t.Errorf("of a process that has ended: %v, %v, %v", id, lives, err)
	}
	for _, change := range []func(*identity){
		func(i *identity) { i.BootID = "another" },
		func(i *identity) { i.PIDNS = "pid:[1]" },
	} {
		other := me
		change(&other)
		write(other)
		if _, lives, err := Owner(dir); lives || err == nil || !strings.Contains(err.Error(), "another boot or PID namespace") {
			t.Errorf("of elsewhere: %v, %v", lives, err)
		}
	}
	write(me)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory that others may enter")
	}
	if _, _, err := Owner(filepath.Join(dir, "none")); err == nil {
		t.Error("no directory")
	}
}
