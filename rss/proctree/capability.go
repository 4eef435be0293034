package proctree

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// CapIPCLock is CAP_IPC_LOCK of include/uapi/linux/capability.h: RLIMIT_MEMLOCK
// does not hold for a process that has it.
const CapIPCLock = 14

// Capable says whether a process has a capability outside of any user namespace,
// by CapEff of /proc/PID/status and by /proc/PID/uid_map. Its error is [Vanished]
// where there is no such PID.
func Capable(proc string, pid, capability int) (bool, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "status")
	if err != nil {
		return false, fmt.Errorf("cannot read status of process %d: %w", pid, err)
	}
	u, err := parseTaskUser(b)
	if err != nil {
		return false, fmt.Errorf("cannot parse status of process %d: %w", pid, err)
	}
	if u.caps&(1<<capability) == 0 {
		return false, nil
	}
	b, err = procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "uid_map"), procfile.Small)
	if err != nil && !Vanished(err) {
		return false, fmt.Errorf("cannot read uid_map of process %d: %w", pid, err)
	}
	return err != nil || wholeMap(b), nil // a kernel without user namespaces has no such file
}
