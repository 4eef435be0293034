package supervisor

import "github.com/rsswarden/rsswarden/rss"

// JobProcesses returns the processes that a Slurm job has on this node, without
// slurmstepd and without the process self and what descends from that. It may
// hang where it reads environments, as [FollowJob].
func JobProcesses(proc, sys, job string, self int) ([]rss.ProcID, error) {
	members, err := newFinder(newViewer(proc, sys), job, "", self).find()
	if err != nil {
		return nil, err
	}
	ids := make([]rss.ProcID, len(members))
	for i, m := range members {
		ids[i] = m.id
	}
	return ids, nil
}
