package render

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
)

func TestSays(t *testing.T) {
	got := slurm.EndedJob{Source: "sacct", ID: "10", State: "FAILED", ExitCode: "0:9", ReqMem: "102400K",
		Steps: []slurm.EndedStep{{ID: "10.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 931340 << 10}}}
	if analysis.Requested(&got) != 100*rss.MiB || askedFor(&got) != "100M" || !got.KilledBySlurmstepd(got.Step("10", "batch")) {
		t.Errorf("%+v: %v", got, analysis.Requested(&got))
	}
	for text, want := range map[string]rss.Bytes{"400M": 400 * rss.MiB, "4G": 4 * rss.GiB, "400Mn": 400 * rss.MiB, "100Mc": 0, "": 0, "x": 0} {
		if b := analysis.Requested(&slurm.EndedJob{ReqMem: text}); b != want {
			t.Errorf("ReqMem %q is %v, want %v", text, b, want)
		}
	}
}
