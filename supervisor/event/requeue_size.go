package event

import (
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// requeueShare is what a requeued job gets on top where the rule does not say.
	requeueShare = 0.25
	// mostRequeueShare bounds that, in percent: more is a typing error.
	mostRequeueShare = 1000
	requeueAdvice    = "advice"
	requeueHint      = "write requeue alone for 25 % more, requeue=+50%, requeue=SIZE such as requeue=12G, or requeue=advice"
)

// More says with how much memory a requeue= rule starts the job again. One
// field is set.
type More struct {
	Share  float64   // on top of what it has, 0.25 for 25 % more
	Size   rss.Bytes // in all, on each node
	Advice bool      // as --advise would have it
}

// More returns what a requeue= rule asks for. ok is false for every other action.
func (r Rule) More() (m More, ok bool) {
	if r.Action != ActionRequeue {
		return More{}, false
	}
	m, _, why, _ := parseMore(r.Arg)
	return m, why == ""
}

// parseMore reads what stands behind requeue=, and gives it back as it is shown:
// "+25%", "12G", "advice"; empty where nothing stands there.
func parseMore(s string) (m More, shown, why, hint string) {
	if s == "" {
		return More{Share: requeueShare}, "", "", ""
	}
	if s == requeueAdvice {
		return More{Advice: true}, s, "", ""
	}
	if n, ok := strings.CutSuffix(s, "%"); ok {
		n, plus := strings.CutPrefix(n, "+")
		p, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		switch {
		case err != nil || strings.Trim(n, "0123456789.") != "":
			return m, s, "not a percentage", requeueHint
		case !plus:
			return m, s, "a percentage of what?", "percent are on top of what the job has: write requeue=+" + n + "%"
		case p <= 0:
			return m, s, "it is no more than now", requeueHint
		case p > mostRequeueShare:
			return m, s, "out of range", "at most +1000%: eleven times what the job has"
		}
		return More{Share: p / 100}, "+" + strconv.FormatFloat(p, 'f', -1, 64) + "%", "", ""
	}
	b, err := rss.ParseBytes(s)
	if err != nil || strings.HasPrefix(s, "+") {
		return m, s, "neither a size nor a percentage", requeueHint
	}
	if b < rss.MiB {
		return m, s, "the size is below 1 MiB", requeueHint
	}
	return More{Size: b}, formatSize(b), "", ""
}
