package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// sideDeaths are those by what is no memory that processes hold together.
var sideDeaths = []dying{
	{
		name: "tasks",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitTask}, length: minutes, sizes: []rss.Bytes{mem, 512},
			used: standing([]rss.Bytes{mem, 512}, 0.5, 1), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseTasks, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "tasks, by a signal of its own",
		scene: scene{job: inJob(), limits: []event.Limit{limitTask}, length: 3 * time.Second, sizes: []rss.Bytes{512},
			used: rising(3*time.Second, 512, 0.1, 0.85), events: []record.Entry{exits(3200*time.Millisecond, "SIGABRT", 0)}},
		cause: event.CauseTasks, certainty: Inferred,
	},
	{
		name: "all tasks used, and it ended well",
		scene: scene{job: inJob(), limits: []event.Limit{limitTask}, length: minutes, sizes: []rss.Bytes{512},
			used: standing([]rss.Bytes{512}, 1), events: []record.Entry{exits(minutes, "", 0)}},
		cause: event.CauseEnded, certainty: Seen,
	},
	{
		name: "address space",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitAddr}, length: minutes, sizes: []rss.Bytes{mem, 16 * rss.GiB},
			used: standing([]rss.Bytes{mem, 16 * rss.GiB}, 0.5, 0.97), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseAS, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "locked memory ends nothing",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitLock}, length: minutes, sizes: []rss.Bytes{mem, 8 * rss.MiB},
			used: standing([]rss.Bytes{mem, 8 * rss.MiB}, 0.6, 1), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "descriptors, faster than any count",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitFD}, length: minutes, sizes: []rss.Bytes{mem, 1024},
			used: standing([]rss.Bytes{mem, 1024}, 0.5, 0.05), events: []record.Entry{
				sends(minutes-2*time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1024, HardFDs: 1048576}),
				spawned(minutes - time.Second), exits(minutes, "", 1),
			}},
		cause: event.CauseFDs, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "maps, told by the hook alone",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-20*time.Second, event.Sharing{Method: "spawn", Maps: 90100, MaxMaps: 65530, FDs: 90024, MaxFDs: 1048576, More: true}), exits(minutes, "", 1),
		}},
		cause: event.CauseMaps, certainty: Inferred,
	},
	{
		name: "descriptors in one message to the fork server",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-time.Second, event.Sharing{Method: "forkserver", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1048576, Sent: 9008, MaxSent: 253}), exits(minutes, "", 1),
		}},
		cause: event.CauseFDs, certainty: Inferred,
	},
	{
		name: "a data set was sent long before",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(time.Minute, event.Sharing{Method: "spawn", FDs: 9024, MaxFDs: 1024}), exits(minutes, "", 1),
		}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "a data set was sent, and all suffices",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 10240}), exits(minutes, "", 1),
		}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "maps, and the finding that tells why",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			maps: func(at time.Duration) int { return int(65530 * at / minutes) }, events: []record.Entry{spawned(9 * time.Minute), exits(minutes+time.Second, "", 1)}},
		cause: event.CauseMaps, certainty: Inferred,
	},
	{
		name: "shm, and who holds it",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitSHM}, length: minutes, sizes: []rss.Bytes{mem, 64 * rss.MiB},
			used: standing([]rss.Bytes{mem, 64 * rss.MiB}, 0.5, 1), events: []record.Entry{
				found(9*time.Minute, event.FindingPrefetch, event.Certain, rss.RoleWorker, 60*rss.MiB), exits(minutes, "SIGBUS", 0)}},
		cause: event.CauseSHM, certainty: Inferred,
	},
}
