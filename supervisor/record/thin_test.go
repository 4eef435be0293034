package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// TestThinnedInOrder: a sample at a decision has the time it was taken at, when
// the fullest of its stretch came after it.
func TestThinnedInOrder(t *testing.T) {
	var enc Encoder
	for n, used := range []rss.Bytes{5, 3, 9, 1} {
		enc.Add(&Sample{
			At: time.Duration(n) * time.Second, AtDecision: n == 1,
			Limits: []Reading{{Used: used * rss.GiB, UsedMax: used * rss.GiB, Size: 10 * rss.GiB, ETA: -1}},
		})
	}
	var got []string
	var d decoder
	for _, it := range Thin([][]byte{enc.Block(0)}, 1) {
		for s := range d.samples(it.Value) {
			got = append(got, fmt.Sprint(s.At, s.AtDecision, s.Limits[0].Used))
		}
	}
	if want := "1s true 3.00 GiB 2s false 9.00 GiB"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}
