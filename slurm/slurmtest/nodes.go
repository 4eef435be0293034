package slurmtest

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// nodeNames are the names of n nodes, each with a slurmd of its own: that of
// the cluster for one, and for more a common name that ends in a number, so
// that Slurm writes them as it does elsewhere, "rwabcn[1-2]".
func nodeNames(cluster string, n int) []string {
	if n == 1 {
		return []string{cluster}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%sn%d", cluster, i+1)
	}
	return names
}

// startNodes starts every slurmd and waits until all nodes take jobs.
func (c *Cluster) startNodes(ctx context.Context) error {
	var started []*daemon
	for _, node := range c.nodes {
		d, err := c.daemon("slurmd", logOf(node), "-D", "-N", node, "-f", c.Conf())
		if err != nil {
			return err
		}
		c.daemons = append(c.daemons, d)
		started = append(started, d)
	}
	for i, node := range c.nodes {
		if err := c.await(ctx, logOf(node), started[i], func() bool {
			out, err := c.admin(ctx, "sinfo", "-h", "-n", node, "-o", "%T").Output()
			return err == nil && strings.TrimSpace(string(out)) == "idle"
		}); err != nil {
			return err
		}
	}
	return nil
}

// Node is the name of the only node, or of the first.
func (c *Cluster) Node() string { return c.nodes[0] }

// Nodes are the names of all nodes, in the order in which Slurm fills a job.
func (c *Cluster) Nodes() []string { return append([]string(nil), c.nodes...) }

// logOf is the name of a slurmd's log, of which it is the only one or not.
func logOf(node string) string { return "slurmd." + node }

// Log returns the log of "slurmd" (slurmstepd writes there too), "slurmctld"
// or "munged"; what it printed, where it did not get as far as a log. With more
// than one node the logs of every slurmd follow each other.
func (c *Cluster) Log(daemon string) string {
	if daemon != "slurmd" {
		return c.log(daemon)
	}
	var b strings.Builder
	for _, node := range c.nodes {
		b.WriteString(c.log(logOf(node)))
	}
	return b.String()
}

func (c *Cluster) log(name string) string {
	b, err := os.ReadFile(c.path("log/" + name + ".log"))
	if err != nil || len(b) == 0 {
		b, _ = os.ReadFile(c.path("log/" + name + ".out"))
	}
	return string(b)
}
