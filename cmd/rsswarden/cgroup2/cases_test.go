package cgroup2

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const user = 1000

func limitThatBinds(t *testing.T) {
	group(t, "job", "memory.max", "300M")
	step := group(t, "job/step", "memory.max", "200M", "memory.high", "190M")
	task := group(t, "job/step/task")
	r := start(t, task, user)
	r.eat(20 * rss.MiB)
	first := r.wait("the start", event.NameStart, func(*line) bool { return true })
	t.Logf("%+v", first.Limits)
	_ = step
	out, err := exec.Command(program, "limits", "--pid", "1").CombinedOutput()
	t.Logf("%s %v", out, err)
	t.Log(r.end(), r.stderr.String())
}

func warnedThenKilled(t *testing.T) {
	group(t, "job", "memory.max", "300M")
	group(t, "job/step", "memory.max", "200M")
	task := group(t, "job/step/task")
	r := start(t, task, user)
	for range 16 {
		r.eat(10 * rss.MiB)
	}
	r.wait("a warning", event.NameDecision, func(l *line) bool { return l.Action == event.ActionWarn })
	t.Log(r.eat(100 * rss.MiB))
	t.Log(r.end(), r.stderr.String())
	t.Logf("%+v", r.events(event.NameDecision, event.NameExit))
	c := exec.Command(program, "report", "--json", r.dir)
	out, err := c.CombinedOutput()
	var rep map[string]any
	json.Unmarshal(out, &rep)
	t.Logf("%.3000s %v", out, err)
}

func groupKilled(t *testing.T) {
}

func high(t *testing.T) {
	job := group(t, "job", "memory.max", "300M", "memory.high", "100M")
	r := start(t, job, user)
	for range 8 {
		r.eat(10 * rss.MiB)
	}
	time.Sleep(2 * time.Second)
	go r.eat(40 * rss.MiB)
	time.Sleep(4 * time.Second)
	t.Log(r.end(), r.stderr.String())
	t.Logf("%+v", r.events(event.NameDecision, event.NameExit))
}

func loweredLive(t *testing.T) {
	job := group(t, "job", "memory.max", "400M")
	r := start(t, job, user)
	r.eat(100 * rss.MiB)
	time.Sleep(time.Second)
	set(t, job, "memory.max", "128M")
	time.Sleep(3 * time.Second)
	set(t, job, "memory.max", "max")
	time.Sleep(3 * time.Second)
	set(t, job, "memory.max", "300M")
	time.Sleep(3 * time.Second)
	t.Log(r.end(), r.stderr.String())
	t.Logf("%+v", r.events(event.NameDecision, event.NameLimit))
}

func pageCache(t *testing.T) {
	job := group(t, "job", "memory.max", "128M")
	r := start(t, job, 0)
	t.Log(r.do("file %d /disk/big", 300*rss.MiB))
	t.Log(r.do("file %d /disk/big", 300*rss.MiB))
	time.Sleep(time.Second)
	t.Log(r.end(), r.stderr.String())
	t.Logf("%+v", r.events(event.NameDecision, event.NameExit))
	t.Log(strings.Repeat("=", 5))
}
