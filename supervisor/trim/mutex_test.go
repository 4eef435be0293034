package trim

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestMutexIsNotLent: who waits for a mutex goes on with the registers of its own
// call behind it, and would not survive our end in the middle of ours.
func TestMutexIsNotLent(t *testing.T) {
	data := dataFile(t, 16<<20)
	c := rsstest.StartChild(t, exec.Command(program(t, "mutex"), data))
	line, err := c.Line()
	var tid int
	if _, scanErr := fmt.Sscanf(line, "waiting %d", &tid); err != nil || scanErr != nil {
		t.Fatalf("%q, %v", line, err)
	}
	until(t, "the thread waits", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", c.PID, tid))
		return strings.HasPrefix(string(b), "202 ")
	})
	pieces, err := piecesOf(c.PID, data)
	if err != nil {
		t.Fatal(err)
	}
	tracer := NewTracer()
	defer tracer.Close()
	for range times(20, 200) {
		if a := tracer.Do(pieces[0]); a.Refusal != NoSleeper {
			t.Fatalf("%v, want %v", a.Refusal.Reason(), NoSleeper.Reason())
		}
	}
	c.In.Close()
	if line, err := c.Line(); line != "got it" {
		t.Errorf("%q, %v", line, err)
	}
}
