package slurm

import (
	"os"
	"testing"
)

// TestNodeName: runs and the node's daemon say the same name of a node, inside
// Slurm and outside.
func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for want, vars := range map[string]map[string]string{
		"n1":        {"SLURMD_NODENAME": "n1"},
		"n1.site":   {"SLURMD_NODENAME": "n1.site"}, // as slurm.conf has it
		short(host): {"SLURMD_NODENAME": ""},
	} {
		if got := NodeName(env(vars)); got != want {
			t.Errorf("%v: %q, want %q", vars, got, want)
		}
	}
	if got := short("n1.site.org"); got != "n1" {
		t.Errorf("%q", got)
	}
}
