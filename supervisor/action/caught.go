package action

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Catches says whether a process has a handler for the signal: bit sig-1 of
// SigCgt in PROC/PID/status (proc(5)). One without would be ended by most
// signals.
func Catches(proc string, pid int, sig syscall.Signal) (bool, error) {
	b, err := procfile.Read(fmt.Sprintf("%s/%d/status", proc, pid), procfile.Status)
	if err != nil {
		return false, fmt.Errorf("cannot read which signals process %d catches: %w", pid, err)
	}
	set, ok := parseCaught(b)
	if !ok {
		return false, fmt.Errorf("cannot read which signals process %d catches: no SigCgt in its status", pid)
	}
	return sig > 0 && sig <= 64 && set>>(sig-1)&1 == 1, nil
}

// parseCaught reads SigCgt of /proc/PID/status: "SigCgt:\t0000000180004203\n",
// 16 hexadecimal digits.
func parseCaught(status []byte) (set uint64, ok bool) {
	for line := range bytes.Lines(status) {
		digits, found := bytes.CutPrefix(line, []byte("SigCgt:"))
		if !found {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 16, 64)
		return set, err == nil
	}
	return 0, false
}
