package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// parent is a place as fit as /tmp on a node.
func parent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lead")
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func rank(t *testing.T, task int) (Member, *exec.Cmd) {
	cmd, id := rsstest.Sleeper(t) // stands for the holder
	return Member{Holder: id, Watcher: id, Command: id, Task: task, Step: "0", Words: []string{"sleep"}}, cmd
}

func join(t *testing.T, dir string, m Member) *post {
	t.Helper()
	p, err := joinAny("/proc", []string{dir}, "46@n1.abc", m)
	wardentest.NoError(t, err)
	return p
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// leads has a post take the lead, which is free.
func leads(t *testing.T, p *post) {
	t.Helper()
	if led, err := p.TryLead(); !led || err != nil {
		t.Fatalf("it does not lead: %v", err)
	}
}

// gone wants nothing to be left of a directory.
func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}

// TestOneLeads: of several one leads, and the next has the lead as soon as it ends.
func TestOneLeads(t *testing.T) {
	dir := parent(t)
	var posts []*post
	leading := -1
	for i := range 5 {
		m, _ := rank(t, i)
		p := join(t, dir, m)
		posts = append(posts, p)
		led, err := p.TryLead()
		wardentest.NoError(t, err)
		if led {
			if leading >= 0 {
				t.Fatal("two lead")
			}
			leading = i
		}
	}
	if leading != 0 {
		t.Fatalf("%d leads, not who was first", leading)
	}
	successor := make(chan int, 5)
	for i := 1; i < 5; i++ {
		go func() {
			if posts[i].Wait() == nil {
				successor <- i
			}
		}()
	}
	for left := 5; left > 0; left-- {
		others, _, err := posts[leading].Members()
		if err != nil || len(others) != left-1 {
			t.Fatalf("%d others, %v; want %d", len(others), err, left-1)
		}
		posts[leading].Leave()
		if left == 1 {
			break
		}
		select {
		case leading = <-successor:
		case <-time.After(10 * time.Second):
			t.Fatal("no rank took the lead over")
		}
		if !posts[leading].Leads() {
			t.Fatal("who was given the lead does not lead")
		}
		if posts[leading].Killed() {
			t.Error("it takes the leader for killed that left")
		}
	}
	gone(t, All(dir))
}

// TestLeadOfTheKilled: the kernel passes the lead on when a leader is killed.
func TestLeadOfTheKilled(t *testing.T) {
	dir := parent(t)
	m, _ := rank(t, 1)
	p := join(t, dir, m)
	ready, cmd := filepath.Join(dir, "ready"), exec.Command(os.Args[0], "-test.run=^TestHelperLeads$")
	cmd.Env = append(os.Environ(), "LEADER_TEST_DIR="+dir, "LEADER_TEST_READY="+ready)
	wardentest.NoError(t, cmd.Start())
	wardentest.Until(t, "the other leads", func() bool { _, err := os.Stat(ready); return err == nil })
	if led, err := p.TryLead(); led || err != nil {
		t.Fatalf("two lead: %v", err)
	}
	if others, _, _ := p.Members(); len(others) != 1 || others[0].Task != 0 {
		t.Fatalf("others %+v", others)
	}
	got := make(chan error, 1)
	go func() { got <- p.Wait() }()
	killed := time.Now()
	kill(cmd)
	select {
	case err := <-got:
		wardentest.NoError(t, err)
	case <-time.After(2 * time.Second):
		t.Fatal("the lead was not taken over within 2 s")
	}
	t.Logf("taken over after %v", time.Since(killed))
	if !p.Killed() {
		t.Error("it does not know that the leader was killed")
	}
	others, left, err := p.Members()
	if err != nil || len(others) != 0 || len(left) != 1 || left[0].Task != 0 {
		t.Errorf("others %+v, left %+v, %v", others, left, err)
	}
	p.Leave()
	gone(t, All(dir))
}

// TestHelperLeads is the other process of TestLeadOfTheKilled.
func TestHelperLeads(t *testing.T) {
	dir := os.Getenv("LEADER_TEST_DIR")
	if dir == "" {
		return
	}
	start, err := proctree.StartTime("/proc", os.Getpid())
	wardentest.NoError(t, err)
	me := rss.ProcID{PID: os.Getpid(), Start: start}
	p := join(t, dir, Member{Holder: me, Watcher: me, Command: me, Task: 0})
	leads(t, p)
	wardentest.NoError(t, os.WriteFile(os.Getenv("LEADER_TEST_READY"), nil, 0o600))
	select {}
}

// TestComeAndGo has many join, lead and leave at once: never do two lead, and
// nothing is left.
func TestComeAndGo(t *testing.T) {
	dir := parent(t)
	leading := make(chan struct{}, 1)
	done := make(chan error, 8)
	for i := range 8 {
		me, _ := rank(t, i)
		go func() {
			for range 200 {
				p, err := joinAny("/proc", []string{dir}, "46@n1.abc", me)
				if err != nil {
					done <- fmt.Errorf("%d: %w", i, err)
					return
				}
				if led, err := p.TryLead(); err != nil {
					done <- err
					return
				} else if led {
					select {
					case leading <- struct{}{}:
					default:
						done <- fmt.Errorf("two lead")
						return
					}
					<-leading
				}
				p.Leave()
				p.dir.Close()
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	sweepAll("/proc", dir, 0)
	gone(t, All(dir))
}

// TestUntrusted: a directory that others could have made, or can write, is not used.
func TestUntrusted(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, all, path string) error
		want string
	}{
		{"world-writable", func(_ *testing.T, all, path string) error {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(path, 0o777)
		}, "mode 0777"},
		{"group may read", func(_ *testing.T, all, path string) error {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(all, 0o750)
		}, "mode 0750"},
		{"foreign", func(t *testing.T, all, path string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
			return os.Chown(path, 1000, 1000)
		}, "belongs to another user"},
		{"a link for all", func(t *testing.T, all, path string) error { return os.Symlink(t.TempDir(), all) }, "no directory"},
		{"a link", func(t *testing.T, all, path string) error {
			if err := os.Mkdir(all, 0o700); err != nil {
				return err
			}
			return os.Symlink(t.TempDir(), path)
		}, "no directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := parent(t)
			wardentest.NoError(t, c.make(t, All(dir), filepath.Join(All(dir), Prefix+"46@n1.abc")))
			m, _ := rank(t, 0)
			if _, err := joinAny("/proc", []string{dir}, "46@n1.abc", m); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestLinksInside: links at the names of our files are not followed.
func TestLinksInside(t *testing.T) {
	dir := parent(t)
	m, _ := rank(t, 0)
	aim := filepath.Join(t.TempDir(), "aim")
	path := filepath.Join(All(dir), Prefix+"46@n1.abc")
	wardentest.NoError(t, os.MkdirAll(path, 0o700))
	link := func(name string) {
		t.Helper()
		_ = os.Remove(filepath.Join(path, name))
		wardentest.NoError(t, os.Symlink(aim, filepath.Join(path, name)))
	}
	link(nodedir.FileOf("order", m.Holder))
	if _, err := joinAny("/proc", []string{dir}, "46@n1.abc", m); err == nil {
		t.Error("a link was taken for the file of orders")
	}
	_ = os.Remove(filepath.Join(path, nodedir.FileOf("order", m.Holder)))
	for _, name := range []string{lockName, nodedir.FileOf("rank", m.Holder), nodedir.FileOf("rank", m.Holder) + ".tmp"} {
		link(name)
	}
	p := join(t, dir, m)
	link(nodedir.FileOf("order", m.Holder))
	if _, err := p.TryLead(); err == nil {
		t.Error("a link was locked")
	}
	if _, err := p.Ordered(); err == nil {
		t.Error("a link was read")
	}
	if err := p.Command(m.Holder, Order{ID: 1}); err == nil {
		t.Error("a link was written")
	}
	if _, err := os.Lstat(aim); !os.IsNotExist(err) {
		t.Errorf("what the links point to was made: %v", err)
	}
}

// TestRenew: files of ours that were removed or broken come back; meanwhile no rank goes
// missing, and no two lead.
func TestRenew(t *testing.T) {
	dir := parent(t)
	m1, _ := rank(t, 0)
	m2, _ := rank(t, 1)
	first, second := join(t, dir, m1), join(t, dir, m2)
	leads(t, first)
	fallen := make(chan error, 1)
	go func() { fallen <- second.Wait() }()
	awaitLock(t, filepath.Join(first.dir.Name(), lockName))
	if others, _, err := first.Members(); err != nil || len(others) != 1 {
		t.Fatalf("met %v, %v", others, err)
	}
	for _, name := range []string{first.mine, second.mine, second.box("order"), lockName} {
		wardentest.NoError(t, os.Remove(filepath.Join(first.dir.Name(), name)))
	}
	if others, left, err := first.Members(); err != nil || len(others) != 1 || len(left) != 0 {
		t.Fatalf("without its file: met %v, left %v, %v", others, left, err)
	}
	for i, p := range []*post{first, second} {
		reopened, err := p.Renew([]Member{m1, m2}[i])
		if err != nil || reopened != (p == second) {
			t.Errorf("%d: reopened %v, %v", i, reopened, err)
		}
		if reopened, err := p.Renew([]Member{m1, m2}[i]); err != nil || reopened {
			t.Errorf("%d: with all in place reopened %v, %v", i, reopened, err)
		}
	}
	wardentest.NoError(t, os.WriteFile(filepath.Join(first.dir.Name(), second.mine), []byte("{}"), 0o600))
	if _, err := second.Renew(m2); err != nil {
		t.Fatal(err)
	}

	m3, _ := rank(t, 2)
	third := join(t, dir, m3)
	if led, err := third.TryLead(); err != nil || led {
		t.Fatalf("two lead: %v, %v", led, err)
	}
	others, _, err := third.Members()
	if err != nil || len(others) != 2 || others[0].Holder != m1.Holder || others[1].Holder != m2.Holder {
		t.Errorf("who came later met %v, %v", others, err)
	}

	// A member that waits for the lock that lost its name gets the lead as before.
	first.End(m1, Ended{})
	select {
	case err := <-fallen:
		if err != nil || !second.Leads() || second.Killed() {
			t.Fatalf("%v, leads %v, after one that was killed %v", err, second.Leads(), second.Killed())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the lead was not taken over")
	}
	if led, err := third.TryLead(); err != nil || led {
		t.Errorf("two lead: %v, %v", led, err)
	}
	second.Leave()
	third.Leave()
	gone(t, first.dir.Name())
}

// awaitLock returns once this process waits in flock(2) for a file: proc(5), /proc/locks.
func awaitLock(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	wardentest.NoError(t, err)
	waits := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .* %d [^ ]*:%d `, os.Getpid(), info.Sys().(*syscall.Stat_t).Ino))
	wardentest.Until(t, "something of ours waits for "+path, func() bool {
		locks, err := os.ReadFile("/proc/locks")
		wardentest.NoError(t, err)
		return waits.Match(locks)
	})
}

// TestRenewTouches: a cleaner removes what has not been touched for days.
func TestRenewTouches(t *testing.T) {
	m, _ := rank(t, 0)
	p := join(t, parent(t), m)
	defer p.Leave()
	if _, err := p.TryLead(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-11 * 24 * time.Hour)
	paths := []string{p.dir.Name()}
	for _, name := range []string{p.mine, p.box("order"), lockName} {
		paths = append(paths, filepath.Join(p.dir.Name(), name))
	}
	for _, path := range paths {
		wardentest.NoError(t, os.Chtimes(path, old, old))
	}
	if _, err := p.Renew(m); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("%s: %v, %v", path, info.ModTime(), err)
		}
	}
}

// TestSweep: what killed runs left is removed when it is old, unless it is in use.
func TestSweep(t *testing.T) {
	dir := parent(t)
	live, _ := rank(t, 0)
	dead, cmd := rank(t, 1)
	p, err := joinAny("/proc", []string{dir}, "1@n1.live", live)
	wardentest.NoError(t, err)
	if _, err := joinAny("/proc", []string{dir}, "2@n1.dead", dead); err != nil {
		t.Fatal(err)
	}
	kill(cmd)
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(All(dir), Prefix+name))
		return err == nil
	}
	sweepAll("/proc", dir, time.Hour)
	if !there("1@n1.live") || !there("2@n1.dead") {
		t.Error("something young was removed")
	}
	sweepAll("/proc", dir, 0)
	if !there("1@n1.live") || there("2@n1.dead") {
		t.Errorf("the living is there: %v, the dead: %v", there("1@n1.live"), there("2@n1.dead"))
	}
	leads(t, p)
	p.Leave()
}

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

// TestNewLeaderWaits a second for what the one before it has begun, where the limit is near
// a moment, and for a recycle on its way until that must have ended.
func TestNewLeaderWaits(t *testing.T) {
	for _, c := range []struct {
		at, left  time.Duration
		pending   bool
		withdrawn time.Duration // when a request was, since we lead, 0 for never
		waits     bool
	}{
		{500 * time.Millisecond, 0, false, 0, true}, // nothing grows
		{500 * time.Millisecond, time.Minute, false, 0, true},
		{500 * time.Millisecond, 2 * time.Second, false, 0, false},
		{50 * time.Millisecond, 2 * time.Second, false, 0, true},
		{time.Second, 0, false, 0, false},
		{2 * time.Second, 0, true, 0, true},
		{time.Minute, 0, true, 0, false},
		{2500 * time.Millisecond, 0, false, 2 * time.Second, true},
		{3 * time.Second, 0, false, 2 * time.Second, false},
	} {
		var s Stagger
		if c.withdrawn > 0 {
			s.Withdrawn(1, time.Hour+c.withdrawn)
		}
		turn := Turn{Now: time.Hour + c.at, From: time.Hour, Successor: true, Left: c.left, Pending: c.pending, Within: time.Minute, Nodes: 1}
		if waits := s.Waits(turn); waits != c.waits {
			t.Errorf("%+v: waits %v", c, waits)
		}
	}
}

// TestNodesTakeTurns: each of several nodes waits up to two seconds, once, and not where the
// limit is near.
func TestNodesTakeTurns(t *testing.T) {
	var s Stagger
	at := func(now, left time.Duration) bool {
		return s.Waits(Turn{Now: time.Hour + now, Left: left, Nodes: 2, Within: time.Minute})
	}
	if at(0, turnRoom-1) {
		t.Error("it waits, and the limit is near")
	}
	if !at(0, 0) || at(turnSpread+1, 0) || at(turnHolds, 0) {
		t.Error("it waits its turn within two seconds, and goes on then")
	}
	if !at(2*turnHolds, time.Minute) {
		t.Error("it does not wait for the next turn")
	}
}

func TestLastRecycled(t *testing.T) {
	var s Stagger
	one, other := rss.ProcID{PID: 1}, rss.ProcID{PID: 2}
	if s.Recycled(one, 0); s.LastRecycled(one) != 1 || s.LastRecycled(other) != 0 {
		t.Errorf("%v and %v", s.LastRecycled(one), s.LastRecycled(other))
	}
}
