package nodedir

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

func TestProcFile(t *testing.T) {
	id := rss.ProcID{PID: 4194304, Start: 18446744073709551615}
	name := FileOf("rank", id)
	if name != "rank.4194304.18446744073709551615" {
		t.Errorf("named %q", name)
	}
	if got, ok := ProcOf(name, "rank"); !ok || got != id {
		t.Errorf("read %v, %v", got, ok)
	}
	for _, other := range []string{
		"", "rank", "rank.", "rank.1", "rank.1.", "rank..2", "rank.0.2", "rank.-1.2", "rank.+1.2", "rank.01.2", "rank.1.02",
		"rank.1.2.3", "rank.1.2.tmp", "rank.1.-2", "rank.4294967297.2", "rank.1.18446744073709551616", "order.1.2", "ranks.1.2", "rank.1.2\n",
	} {
		if got, ok := ProcOf(other, "rank"); ok || got != (rss.ProcID{}) {
			t.Errorf("%q is of %v", other, got)
		}
	}
}
