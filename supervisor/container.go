package supervisor

import "github.com/rsswarden/rsswarden/rss"

// This file looks behind the runtime of a container.

// passers catch every signal and pass it on to what they run, which may have no handler
// for it and die: the parent of a container of Apptainer's or Singularity's, and the init
// where PID numbers are the container's own.
var passers = map[string]bool{"starter": true, "starter-suid": true, "appinit": true, "sinit": true}

// behind returns, for each of the processes that only passes signals on, what it runs.
func behind(s *rss.Sample, all []*rss.Proc) (list []*rss.Proc) {
	for _, p := range all {
		list = append(list, runs(s, p, 4)...) // a runtime, its init, and to spare
	}
	return list
}

func runs(s *rss.Sample, p *rss.Proc, deep int) (list []*rss.Proc) {
	if passers[p.Comm] && deep > 0 {
		for i := range s.Procs {
			if q := &s.Procs[i]; q.Parent == p.ID.PID && living(q) {
				list = append(list, runs(s, q, deep-1)...)
			}
		}
	}
	if len(list) == 0 { // a program of that name runs nothing
		list = append(list, p)
	}
	return list
}
