package slurm

import (
	"os"
	"strings"
)

// NodeName is what Slurm calls this node: SLURMD_NODENAME where it is set
// (srun(1)), else the host name up to its first dot, as slurmd takes it when
// slurm.conf(5) gives no NodeHostname. It is empty where the host has no name.
func NodeName(lookup func(string) (string, bool)) string {
	if name, ok := lookup("SLURMD_NODENAME"); ok && name != "" {
		return name
	}
	host, _ := os.Hostname()
	return short(host)
}

func short(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}
