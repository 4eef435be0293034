package main_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestTrimSlurm: typed in a job's script and in a step beside it, it finds the
// job's processes and no others.
func TestTrimSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{CPUs: 4, RealMemory: 20000})
	warden := c.Install(t, binary)
	for name, how := range map[string]string{
		"script": warden,
		"step":   "srun --overlap --mem=0 -N1 -n1 " + warden,
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(c.Dir(), "trim-"+name)
			other := startMapper(t, mapFile(t), "futex", nil)
			had := other.resident()
			run := c.Submit(t, fmt.Sprintf(`dd if=/dev/urandom of=%[1]s bs=1M count=64 status=none && sync %[1]s
mkfifo %[1]s.in %[1]s.out
%[2]s %[3]s %[1]s futex < %[1]s.in > %[1]s.out &
exec 3> %[1]s.in 4< %[1]s.out
read -r before <&4
%[4]s trim --drop --json || exit 1
echo >&3
read -r after <&4
exec 3>&-
wait $!
[ "$before" = "$after" ]`, data, python, pythonJob(t, c, "map.py", mapJob), how), "--mem=300")
			r := run.Wait(t)
			var got trimming
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.State != "COMPLETED" {
				t.Fatalf("%v, %s, stdout %q\n%s", err, r.State, r.Stdout, r.Stderr)
			}
			freed, pythons := 0, 0
			for _, p := range got.Processes {
				if p.Freed != nil {
					freed += *p.Freed
				}
				if p.Comm == "python3" {
					pythons++
				}
			}
			if freed < mappedBytes-1<<20 || pythons != 1 || len(got.Dropped) != 1 || got.Dropped[0].After == nil || *got.Dropped[0].After > 1<<20 {
				t.Errorf("%s", r.Stdout)
			}
			if now := other.resident(); now < had-1<<20 {
				t.Errorf("RssFile of one outside of the job fell from %d to %d", had, now)
			}
		})
	}
}
