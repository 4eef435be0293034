package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestSeenCanBeOrdered: a member that is seen has a file for orders, so that none is lost
// between the two.
func TestSeenCanBeOrdered(t *testing.T) {
	dir := parent(t)
	m0, _ := rank(t, 0)
	m1, _ := rank(t, 1)
	lead := join(t, dir, m0)
	orders := filepath.Join(lead.dir.Name(), nodedir.FileOf("order", m1.Holder))
	if err := os.Mkdir(orders, 0o700); err != nil { // no orders can be had
		t.Fatal(err)
	}
	if _, err := joinAny("/proc", []string{dir}, "46@n1.abc", m1); err == nil {
		t.Fatal("it has joined without a file for orders")
	}
	if others, _, err := lead.Members(); err != nil || len(others) != 0 {
		t.Errorf("it is seen: %+v, %v", others, err)
	}
	wardentest.NoError(t, os.Remove(orders))
	join(t, dir, m1)
	if others, _, err := lead.Members(); err != nil || len(others) != 1 {
		t.Errorf("others %+v, %v", others, err)
	}
	if err := lead.Command(m1.Holder, Order{ID: 1}); err != nil {
		t.Error(err)
	}
}

// TestLeaveBesideWhoJoins: the last to leave keeps the orders of a member that is about to
// join, and removes those of one that has ended before.
func TestLeaveBesideWhoJoins(t *testing.T) {
	for _, c := range []struct {
		name  string
		lives bool
	}{{"lives", true}, {"has ended", false}} {
		t.Run(c.name, func(t *testing.T) {
			dir := parent(t)
			m0, _ := rank(t, 0)
			m1, cmd := rank(t, 1)
			lead := join(t, dir, m0)
			leads(t, lead)
			p, err := open("/proc", All(dir), "46@n1.abc")
			wardentest.NoError(t, err)
			p.mine = nodedir.FileOf("rank", m1.Holder)
			wardentest.NoError(t, p.openOrders())
			if !c.lives {
				kill(cmd)
			}
			lead.Leave()
			if _, err := os.Stat(p.Orders()); (err == nil) != c.lives {
				t.Errorf("its orders: %v", err)
			}
			if !c.lives {
				return
			}
			if err := p.Put(m1); err != nil {
				t.Error(err)
			}
			leads(t, p)
			p.Leave()
			gone(t, All(dir))
		})
	}
}
