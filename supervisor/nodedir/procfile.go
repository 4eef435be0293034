package nodedir

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// FileOf names the file of a kind that belongs to a process: KIND.PID.START. A
// process that has the PID later has another file.
func FileOf(kind string, id rss.ProcID) string {
	return fmt.Sprintf("%s.%d.%d", kind, id.PID, id.Start)
}

// ProcOf reads a name that [FileOf] wrote; false for any other.
func ProcOf(name, kind string) (rss.ProcID, bool) {
	rest, ok := strings.CutPrefix(name, kind+".")
	pid, start, found := strings.Cut(rest, ".")
	if !ok || !found {
		return rss.ProcID{}, false
	}
	p, err1 := strconv.ParseInt(pid, 10, 32)
	s, err2 := strconv.ParseUint(start, 10, 64)
	id := rss.ProcID{PID: int(p), Start: s}
	if err1 != nil || err2 != nil || id.PID <= 0 || FileOf(kind, id) != name {
		return rss.ProcID{}, false
	}
	return id, true
}
