package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMemberNews: a replaced file is read again, a damaged one is no member.
func TestMemberNews(t *testing.T) {
	dir := parent(t)
	m0, _ := rank(t, 0)
	m1, cmd := rank(t, 1)
	m2, _ := rank(t, 2)
	p, q := join(t, dir, m0), join(t, dir, m1)
	join(t, dir, m2)
	wardentest.NoError(t, os.WriteFile(filepath.Join(p.dir.Name(), nodedir.FileOf("rank", m2.Holder)), []byte("{"), 0o600))
	if others, _, err := p.Members(); err != nil || len(others) != 1 || others[0].Ended != nil {
		t.Fatalf("%+v, %v", others, err)
	}
	m1.Ended = &Ended{Signal: 9}
	wardentest.NoError(t, q.Put(m1))
	if others, _, _ := p.Members(); len(others) != 1 || others[0].Ended == nil || others[0].Ended.Signal != 9 {
		t.Fatalf("%+v", others)
	}
	kill(cmd)
	others, left, err := p.Members()
	if err != nil || len(others) != 0 || len(left) != 1 || left[0].Ended == nil {
		t.Errorf("others %+v, left %+v, %v", others, left, err)
	}
}

func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"v":1,"holder":{"pid":1,"start":2},"watcher":{"pid":1,"start":2},"command":{"pid":1,"start":2},"task":-1}`), "rank.1.2")
	f.Add([]byte(`{`), "rank.01.2")
	dir := f.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	p, err := open("/proc", dir, "x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		id, ok := nodedir.ProcOf(name, "rank")
		if !ok {
			return
		}
		wardentest.NoError(t, os.WriteFile(filepath.Join(p.dir.Name(), name), data, 0o600))
		if m, err := p.member(name, id); err == nil && m.Holder != id {
			t.Errorf("%+v of %q", m, name)
		}
		_ = os.Remove(filepath.Join(p.dir.Name(), name))
		clear(p.known)
	})
}
