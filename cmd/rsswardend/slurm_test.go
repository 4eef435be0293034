package main

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestRealSlurm: a job of a real Slurm, its steps and its limit are told while it runs; and
// one that the OOM killer hits is on record.
func TestRealSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{})
	records := t.TempDir()
	d := start(t, "--records", records)
	// A step of its own sleeps beside the batch step.
	near := c.Submit(t, `srun --mem=100 sleep 600 &
exec /usr/bin/python3 -c 'import time; held = bytearray(180 << 20); time.sleep(600)'`, "--mem=300", "--ntasks=1", "--overcommit")
	near.Running(t)
	var got map[string]float64
	until(t, "the job, its two steps and 0.5 of its limit are told", func() bool {
		_, page := d.get("/metrics")
		got = values(t, page, c.Node())
		return got["rsswarden_limit_ratio job "+near.ID] > 0.5 && got["rsswarden_processes "+near.ID+" 0"] > 0
	})
	const mib = 1 << 20
	for series, want := range map[string]float64{
		"rsswarden_memory_limit_bytes job " + near.ID:             300 * mib,
		"rsswarden_memory_limit_bytes step " + near.ID + " batch": 300 * mib,
		"rsswarden_memory_limit_bytes step " + near.ID + " 0":     100 * mib,
		"rsswarden_oom_kills_total " + near.ID:                    0,
	} {
		if v, ok := got[series]; v != want || !ok {
			t.Errorf("%s is %v, %v; want %v", series, v, ok, want)
		}
	}
	if n := got["rsswarden_processes "+near.ID+" 0"]; n < 1 || n > 2 {
		t.Errorf("%v processes in step 0: %v", n, got)
	}
	if out := c.Do(t, "scancel", near.ID); out.Code != 0 {
		t.Fatalf("scancel: %s", out.Stderr)
	}
	until(t, "the job is gone", func() bool {
		_, page := d.get("/metrics")
		return !strings.Contains(page, `jobid="`+near.ID+`"`)
	})

	began := time.Now()
	// The script goes on for a moment, as most do: a step that ends in the same instant takes
	// its count with it.
	over := c.Submit(t, "head -c 900000000 /dev/zero | tail\nsleep 2", "--mem=60", "--no-requeue")
	if r := over.Wait(t); r.State != "OUT_OF_MEMORY" {
		t.Fatalf("%s (%s)", r.State, r.Reason)
	}
	until(t, "the end of the job is told", func() bool {
		return strings.Contains(d.said(), `msg="a job that the OOM killer hit has ended" jobid=`+over.ID+" ")
	})
	e, b := lastRecord(t, records)
	if e.JobID != over.ID || e.Node != c.Node() || !e.Ended || e.OOMKills == 0 || e.Steps["batch"] == 0 || e.LimitBytes == nil || *e.LimitBytes != 60*mib || e.FirstKill.Before(began) || e.UID == nil {
		t.Errorf("%s", b)
	}
	if code := d.end(); code != 0 {
		t.Errorf("status %d: %s", code, d.said())
	}
}
