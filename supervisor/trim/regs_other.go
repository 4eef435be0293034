//go:build !amd64

package trim

import "golang.org/x/sys/unix"

// supported: ptrace is a thing of each processor's own, and this was not run on
// another than amd64.
const supported = false

type registers struct{}

var remade map[uint64]bool

func getRegisters(int, *registers) error { return unix.ENOSYS }
func setRegisters(int, *registers) error { return unix.ENOSYS }

func (r *registers) is64() bool                               { return false }
func (r *registers) call() (nr uint64, result int64, in bool) { return 0, 0, false }
func (r *registers) remake()                                  {}
func (r *registers) make(_, _, _, _ uint64)                   {}

func (r *registers) lends() int { return 0 }

func (t *thread) atCallInstruction() bool { return false }
