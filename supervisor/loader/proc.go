package loader

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// startTime reads field 22 of PROC/PID/stat (proc(5)): clock ticks since boot.
func startTime(proc string, pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStartTime(data)
}

func parseStartTime(stat []byte) (uint64, error) {
	// The name, field 2, may hold any byte: count from its closing parenthesis.
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("%w: stat of %d fields", errMalformed, len(fields))
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: start time %q", errMalformed, fields[19])
	}
	return start, nil
}

// fileOf names the file of that kind for a process: KIND.PID.START.
func fileOf(kind string, id rss.ProcID) string {
	return fmt.Sprintf("%s.%d.%d", kind, id.PID, id.Start)
}

// procFile reads such a name.
func procFile(name, kind string) (rss.ProcID, bool) {
	rest, ok := strings.CutPrefix(name, kind+".")
	if !ok {
		return rss.ProcID{}, false
	}
	p, s, ok := strings.Cut(rest, ".")
	if !ok {
		return rss.ProcID{}, false
	}
	pid, err := strconv.ParseUint(p, 10, 31)
	if err != nil || pid == 0 {
		return rss.ProcID{}, false
	}
	start, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return rss.ProcID{}, false
	}
	id := rss.ProcID{PID: int(pid), Start: start}
	return id, fileOf(kind, id) == name
}
