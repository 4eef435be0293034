package event

import (
	"math"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestLimitsOfOneProcess: which of them there are, and what they compare.
func TestLimitsOfOneProcess(t *testing.T) {
	p := &rss.Proc{ID: rss.ProcID{PID: 7}, Role: rss.RoleTrainer, Virtual: 3 * rss.GiB, Locked: rss.MiB, Pinned: 2 * rss.MiB}
	none := &rss.ResourceLimits{AddressSpace: math.MaxUint64, LockedMemory: math.MaxUint64}
	some := &rss.ResourceLimits{AddressSpace: 4 * rss.GiB, LockedMemory: 8 * rss.MiB}
	if _, ok := addressSpace(p, none); ok {
		t.Error("an unlimited address space is limited")
	}
	if _, ok := lockedMemory(p, none); ok {
		t.Error("unlimited locked memory is limited")
	}
	if l, ok := addressSpace(p, some); !ok || l.Ratio() != 0.75 || l.PID != 7 || l.Role != rss.RoleTrainer {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := lockedMemory(p, some); !ok || l.Used != 2*rss.MiB || l.UsedSource != "VmPin of /proc/PID/status" {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := lockedMemory(&rss.Proc{}, some); ok {
		t.Error("who locks nothing is limited")
	}
}
