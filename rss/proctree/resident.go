package proctree

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// Resident is what of a process is in memory, by VmRSS, RssFile and RssShmem of
// /proc/PID/status. A file of tmpfs that is mapped counts as Shmem.
type Resident struct{ RSS, File, Shmem rss.Bytes }

// ResidentOf reads it for one process. Its error is [Vanished] where there is no
// such PID.
func ResidentOf(proc string, pid int) (Resident, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "status")
	if err != nil {
		return Resident{}, fmt.Errorf("cannot read status of process %d: %w", pid, err)
	}
	s, err := parseStatus(b)
	if err != nil {
		return Resident{}, fmt.Errorf("cannot parse status of process %d: %w", pid, err)
	}
	return Resident{RSS: s.rss, File: s.file, Shmem: s.shmem}, nil
}
