package main_test

import (
	"os/exec"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestTrimKernels: on a kernel whose ptrace(2) has nothing newer than Linux 4.18, as
// PTRACE_GET_RSEQ_CONFIGURATION is, memory is given back as ever. Where it refuses, or
// fails half-way, trim says so, and the process goes on as if nothing had been.
func TestTrimKernels(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		want  event.Reason // "" for done
	}{
		"without what is new": {"[(101, 5, 0, -0x420d)]", ""},
		"without ptrace":      {"[(101, 38)]", event.ReasonError},
		"ptrace not allowed":  {"[(101, 1)]", event.ReasonUndumpable},
		"without SEIZE":       {"[(101, 5, 0, 0x4206)]", event.ReasonError},
		"INTERRUPT fails":     {"[(101, 5, 0, 0x4207)]", event.ReasonGivenUp},
		"GETREGS fails":       {"[(101, 5, 0, 12)]", event.ReasonGivenUp},
		"SETREGS fails":       {"[(101, 5, 0, 13)]", event.ReasonError},
		"PEEKTEXT fails":      {"[(101, 5, 0, 1)]", event.ReasonNoSleeper},
		"SYSCALL fails":       {"[(101, 5, 0, 24)]", event.ReasonError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMapper(t, mapFile(t), "futex", nil)
			under := func(cmd *exec.Cmd) {
				cmd.Args = append(refusing(t, c.rules), cmd.Args...)
				cmd.Path = cmd.Args[0]
			}
			status := 0
			if c.want != "" {
				status = 1
			}
			got, said := trims(t, under, status, "--pid", m.pid())
			if len(got.Processes) != 1 {
				t.Fatalf("%+v", got)
			}
			p := got.Processes[0]
			if c.want == "" {
				if p.Refused != nil || p.Freed == nil || *p.Freed < mappedBytes-1<<20 {
					t.Errorf("%+v", p)
				}
			} else if p.Refused == nil || p.Freed != nil && *p.Freed > 0 {
				t.Errorf("%+v, want it refused: %s\n%s", p, c.want, said)
			} else if *p.Refused != string(c.want) {
				t.Errorf("refused: %s %s, want %s", *p.Refused, p.Detail, c.want)
			}
			if by := m.status("TracerPid"); by != "0" {
				t.Errorf("traced by %s", by)
			}
			m.intact()
		})
	}
}
