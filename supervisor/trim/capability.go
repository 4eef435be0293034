package trim

import "golang.org/x/sys/unix"

// capability is CAP_SYS_PTRACE of the thread that traces, laid down while it
// attaches: who may trace everybody would not be refused what asked not to be
// looked into (PR_SET_DUMPABLE, another user's process).
type capability struct {
	has  bool
	data [2]unix.CapUserData
}

var capabilityHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

func (c *capability) find() {
	header := capabilityHeader
	err := unix.Capget(&header, &c.data[0])
	c.has = err == nil && c.data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

func (c *capability) lower() { c.set(c.data[0].Effective &^ (1 << unix.CAP_SYS_PTRACE)) }

// raise takes it back: /proc/PID/maps of a process with all capabilities is for
// those alone that have them too.
func (c *capability) raise() { c.set(c.data[0].Effective) }

func (c *capability) set(effective uint32) {
	if !c.has {
		return
	}
	data, header := c.data, capabilityHeader
	data[0].Effective = effective
	_ = unix.Capset(&header, &data[0]) // less is always allowed, and so is what we had
}
