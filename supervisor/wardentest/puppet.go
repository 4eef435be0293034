package wardentest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// puppetJob does as each line of its stdin says, answers each with a line, and
// ends with status 7 when Puppet to, or when its stdin ends.
//
//go:embed testdata/puppet.py
var puppetJob string

// Puppet is a Python that does what a test says.
type Puppet struct{ *Talk }

// StartPuppet starts one as a user.
func StartPuppet(t *testing.T, uid int, env ...string) *Puppet {
	t.Helper()
	NeedPython(t)
	cmd := exec.Command(Python, "-c", puppetJob)
	cmd.Env = Env(env...)
	if As(uid, cmd); uid != os.Geteuid() {
		cmd.Dir = "/"
	}
	p := &Puppet{StartTalk(t, cmd)}
	p.Hear()
	return p
}

// Do has it do something, and is what it answers.
func (p *Puppet) Do(what string) string {
	p.t.Helper()
	fmt.Fprintln(p.In, what)
	return p.Hear()
}

// End ends the process, and wants the status that it gives itself.
func (p *Puppet) End() {
	p.t.Helper()
	fmt.Fprintln(p.In, "end")
	p.EndsWith(7)
}
