package loader

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// startTime reads field 22 of PROC/PID/stat (proc(5)): clock ticks since boot.
func startTime(proc string, pid int) (uint64, error) {
	data, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "stat"), procfile.Small)
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
