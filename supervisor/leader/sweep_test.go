package leader

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep: what killed runs have left goes when it is old, what somebody is in
// stays.
func TestSweep(t *testing.T) {
	dir := parent(t)
	live, _ := rank(t, 0)
	dead, cmd := rank(t, 1)
	p, err := Join("/proc", []string{dir}, "1@n1.live", live)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join("/proc", []string{dir}, "2@n1.dead", dead); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(All(dir), Prefix+name))
		return err == nil
	}
	Sweep("/proc", dir, time.Hour)
	if !there("1@n1.live") || !there("2@n1.dead") {
		t.Error("something young was removed")
	}
	Sweep("/proc", dir, 0)
	if !there("1@n1.live") || there("2@n1.dead") {
		t.Errorf("the living is there: %v, the dead: %v", there("1@n1.live"), there("2@n1.dead"))
	}
	if led, err := p.TryLead(); !led || err != nil {
		t.Errorf("the living cannot lead: %v", err)
	}
	p.Leave()
}
