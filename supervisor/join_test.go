package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// TestLateJoinIsGivenUp: a file system that answers after we went on alone leaves no
// lead behind that nobody uses.
func TestLateJoinIsGivenUp(t *testing.T) {
	dir := runtimeDir(t)
	slow, next := newStand(t, inJob(t, 0, dir)), newStand(t, inJob(t, 1, dir))
	next.holder.begin.Holder = theHolder + 500
	for _, fs := range []rsstest.Tree{slow.fs, next.fs} {
		fs.Put(rsstest.Process{PID: theHolder, Parent: 1, Start: 4, Comm: "rsswarden"})
		fs.Put(rsstest.Process{PID: theHolder + 500, Parent: 1, Start: 4, Comm: "rsswarden"})
	}
	join := func(s *stand) (*node.Post, error) {
		return node.Join(s.Proc, []string{dir}, s.postName(s.holder.begin), s.member(s.holder.begin))
	}
	answer, joined := make(chan bool), make(chan string, 1)
	post, led, err := joinWithin(time.Millisecond, func() (*node.Post, error) {
		<-answer
		p, err := join(slow)
		if err == nil {
			joined <- filepath.Join(p.Path(), nodedir.FileOf("rank", rss.ProcID{PID: theHolder, Start: 4}))
		}
		return p, err
	})
	if post != nil || led || err == nil {
		t.Fatalf("joined %v, leads %v, %v", post, led, err)
	}
	close(answer)
	post, led, err = joinWithin(joinPatience, func() (*node.Post, error) { return join(next) })
	if err != nil {
		t.Fatal(err)
	}
	defer post.Leave()
	if !led { // the other has it for a moment
		fallen := make(chan error, 1)
		go func() { fallen <- post.Wait() }()
		if err := yields(t, fallen, 10*time.Second); err != nil {
			t.Error(err)
		}
	}
	file := yields(t, joined, 10*time.Second)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(file); err != nil {
			return
		} else if time.Now().After(end) {
			t.Fatal("it is still there")
		}
	}
}
