package hold

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// This file takes the signals that reach the holder, and has each judged.

// readSignals takes all that the signalfd has.
func (h *holder) readSignals() {
	for {
		n, err := readNow(h.signals, h.info[:])
		if err != nil || n < infoSize {
			return
		}
		h.moved = true
		for off := 0; off+infoSize <= n; off += infoSize {
			si := (*unix.SignalfdSiginfo)(unsafe.Pointer(&h.info[off]))
			early := signalSet(0)
			if s := int(si.Signo); s >= 1 && s <= 64 {
				early = h.early & bit(s)
				h.early &^= early
			}
			h.signal(&arrival{signo: int(si.Signo), code: si.Code, pid: int(si.Pid), uid: si.Uid, value: si.Ptr}, early != 0)
		}
	}
}

// readNoted takes what the handler wrote; signal 0 only wakes us.
func (h *holder) readNoted() {
	for {
		n, err := readNow(h.noted, h.records[:])
		if err != nil || n < recordSize {
			return
		}
		h.moved = true
		for off := 0; off+recordSize <= n; off += recordSize {
			r := (*record)(unsafe.Pointer(&h.records[off]))
			if r.signo != 0 {
				h.signal(&arrival{signo: int(r.signo), code: r.code, pid: int(r.pid), uid: r.uid, value: r.value}, r.time < h.began)
			}
		}
	}
}

func (h *holder) signal(a *arrival, early bool) {
	if h.ended || a.signo < 1 || a.signo > 64 {
		return
	}
	if h.broke != nil {
		h.passOn(a)
		return
	}
	defer h.signalBroke(a)
	fault.Point("holder-signal")
	if a.code > 0 {
		switch unix.Signal(a.signo) {
		case unix.SIGTSTP:
			h.ctrlZ = true
		case unix.SIGCONT:
			h.ctrlZ = false
		}
	}
	group := unix.Getpgrp()
	doubtful := h.witness.used.has(a.signo)
	if ofOurs := a.code > 0 && ownUse.has(a.signo); !ofOurs && !early {
		h.settleStart()
		if doubtful {
			h.settle(a.signo)
		}
	}
	c := circumstances{
		self:     h.self,
		watcher:  h.watcher.pid,
		command:  h.pid,
		leader:   isLeader(h.self),
		early:    early,
		doubtful: doubtful,
	}
	if early && h.brought.has(a.signo) {
		h.brought &^= bit(a.signo)
		c.brought = true
	}
	if g, err := unix.Getpgid(h.pid); err == nil {
		c.sameGroup = g == group
	}
	// Always asked: whatever becomes of this signal, the bit belongs to it.
	c.witness, c.seen = h.witness.see(a.signo, group)
	// Waiting together with SIGCONT, it must have come later.
	cont := unix.Signal(a.signo) == unix.SIGCONT
	c.overtaken = cont && pendingSignals()&stopping != 0
	v := judge(a, &c)
	if v == ours {
		return
	}
	sent := h.sentStop && unix.Signal(a.signo) == unix.SIGTSTP
	if sent {
		h.sentStop = false
	}
	switch {
	case v == toCommand && sent:
	case v == toCommand:
		forward(h.pidfd, h.pid, a)
		if stop := unix.SIGTSTP; cont && c.sameGroup && pendingSignals().has(int(stop)) {
			// ^Z in this moment: our SIGCONT may have undone it.
			forward(h.pidfd, h.pid, &arrival{signo: int(stop)})
			h.sentStop = true
		}
	case v == toParent && h.parent > 1 && h.parent == os.Getppid():
		forward(-1, h.parent, a)
	}
	m := message{kind: kindSignal, a: int32(a.signo), c: int32(a.pid)}
	if v == toCommand {
		m.b = 1
	}
	h.send(&m)
}

func isLeader(pid int) bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid == pid
}
