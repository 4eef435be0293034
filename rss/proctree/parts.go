package proctree

import (
	"github.com/rsswarden/rsswarden/rss"
)

// parseParts reads /proc/PID/smaps_rollup: a line with addresses, then "Name:
// value kB" lines. procfs does not know the Pss_ lines.
func parseParts(b []byte) (rss.Parts, error) {
	var p rss.Parts
	if len(b) == 0 {
		return p, errGone // it has no memory any more
	}
	const hasRSS, hasPSS = 1, 2
	has := 0
	for len(b) > 0 {
		var name, value []byte
		name, value, b = cutNamed(b)
		var to *rss.Bytes
		switch string(name) {
		case "Rss":
			to = &p.RSS
			has |= hasRSS
		case "Pss":
			to = &p.PSS
			has |= hasPSS
		case "Pss_Anon":
			to = &p.PSSAnon
			p.Split = true
		case "Pss_File":
			to = &p.PSSFile
		case "Pss_Shmem":
			to = &p.PSSShmem
		case "Shared_Clean":
			to = &p.SharedClean
		case "Shared_Dirty":
			to = &p.SharedDirty
		case "Private_Clean":
			to = &p.PrivateClean
		case "Private_Dirty":
			to = &p.PrivateDirty
		case "Anonymous":
			to = &p.Anonymous
		case "Swap":
			to = &p.Swap
		case "SwapPss":
			to = &p.SwapPSS
		default:
			continue
		}
		var ok bool
		if *to, ok = kilobytes(value); !ok {
			return rss.Parts{}, errMalformed
		}
	}
	if has != hasRSS|hasPSS {
		return rss.Parts{}, errMalformed
	}
	return p, nil
}
