package hold

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestJudge(t *testing.T) {
	const (
		kernel = 0x80
		user   = 0
		sender = 500
	)
	in := circumstances{self: 100, watcher: 101, sameGroup: true}
	with := func(f func(*circumstances)) circumstances { c := in; f(&c); return c }
	out := with(func(c *circumstances) { c.sameGroup = false })
	can := with(func(c *circumstances) { c.witness = true })
	seen := with(func(c *circumstances) { c.witness, c.seen = true, true })
	leader := with(func(c *circumstances) { c.leader = true })
	doubtful := with(func(c *circumstances) { c.witness, c.doubtful = true, true })
	early := with(func(c *circumstances) { c.early = true })
	overtaken := with(func(c *circumstances) { c.witness, c.overtaken = true, true })
	within := func(c circumstances) circumstances { c.within = true; return c }
	brought := with(func(c *circumstances) { c.early, c.brought = true, true })
	for _, test := range []struct {
		name string
		sig  unix.Signal
		code int32
		pid  int
		c    circumstances
		want verdict
	}{
		{"to the holder, no witness", unix.SIGTERM, user, sender, in, toCommand},
		{"to the holder", unix.SIGTERM, user, sender, can, toCommand},
		{"to the group", unix.SIGTERM, user, sender, seen, hasIt},
		{"to the group, but the command left it", unix.SIGTERM, user, sender, out, toCommand},
		{"our own", unix.SIGPIPE, user, 100, seen, ours},
		{"from the watcher", unix.SIGCONT, user, 101, in, ours},
		{"from outside our PID namespace", unix.SIGTERM, user, 0, can, toCommand},
		{"^C", unix.SIGINT, kernel, 0, in, hasIt},
		{"^C, used witness", unix.SIGINT, kernel, 0, can, hasIt},
		{"^C, the command has its own group", unix.SIGINT, kernel, 0, out, toCommand},
		{"hangup to the session leader", unix.SIGHUP, kernel, 0, can, toCommand},
		{"hangup to the session leader, no witness", unix.SIGHUP, kernel, 0, leader, toCommand},
		{"hangup to the group", unix.SIGHUP, kernel, 0, seen, hasIt},
		{"hangup to the group, no witness", unix.SIGHUP, kernel, 0, in, hasIt},
		{"continue of an orphaned group", unix.SIGCONT, kernel, 0, seen, hasIt},
		{"continued and stopped again at once", unix.SIGCONT, user, sender, overtaken, hasIt},
		{"an alarm set before exec", unix.SIGALRM, kernel, 0, in, toCommand},
		{"our own CPU limit", unix.SIGXCPU, kernel, 0, in, ours},
		{"SIGXCPU sent", unix.SIGXCPU, user, sender, in, toCommand},
		{"a child of ours", unix.SIGCHLD, 1, 103, in, ours},
		{"SIGCHLD sent", unix.SIGCHLD, user, sender, in, toCommand},
		{"waiting before the start", unix.SIGTERM, user, sender, early, toCommand},
		{"waiting before the start, from the terminal", unix.SIGINT, kernel, 0, early, toCommand},
		{"sent to itself before exec", unix.SIGUSR1, user, 100, brought, toCommand},
		{"our own write beyond RLIMIT_FSIZE", unix.SIGXFSZ, user, 100, early, ours},
		{"our own CPU limit before the start", unix.SIGXCPU, kernel, 0, early, ours},
		{"SIGXCPU waiting at exec", unix.SIGXCPU, kernel, 0, brought, toCommand},
		{"from the command to its parent", unix.SIGUSR1, user, 102, within(can), toParent},
		{"from the command to its parent's group", unix.SIGUSR1, user, 102, within(out), toParent},
		{"from the command to its group", unix.SIGTERM, user, 102, within(seen), hasIt},
		{"from the command, again at once", unix.SIGTERM, user, 102, within(doubtful), hasIt},
		{"from the command, no witness", unix.SIGTERM, user, 102, within(in), hasIt},
		{"from the command, no witness, the parent in the group", unix.SIGTERM, user, 102, within(with(func(c *circumstances) { c.parentToo = true })), toParent},
		{"from the command to its group, the parent in it", unix.SIGTERM, user, 102, within(with(func(c *circumstances) { c.witness, c.seen, c.parentToo = true, true, true })), hasIt},
		{"from a subshell to the command's parent", unix.SIGUSR1, user, 103, within(can), toParent},
		{"from a subshell to its group", unix.SIGTERM, user, 103, within(seen), hasIt},
		{"the runtime's preemption", unix.SIGURG, siTkill, 100, early, ours},
	} {
		if got := judge(&arrival{signo: int(test.sig), code: test.code, pid: test.pid}, &test.c); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
