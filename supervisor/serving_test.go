package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// answering is a stand that leads, with a trainer and two workers, and answers.
func answering(t *testing.T) (*stand, rss.ProcID) {
	t.Helper()
	s := leading(t, inJob(t, 0, runtimeDir(t)), withLoader(t), func(o *Options) { o.Settings.Loader = true })
	id := s.trainer(100*rss.MiB, worker1, worker2)
	s.put(worker1, id.PID, 200*rss.MiB, 10*rss.MiB)
	s.put(worker2, id.PID, 150*rss.MiB, 10*rss.MiB)
	s.open(s.holder.begin)
	if s.tell.Status.Requests() == nil {
		t.Fatal("the control socket is not served")
	}
	return s, id
}

// asks sends a request while the test plays the loop.
func asks[T any](t *testing.T, s *stand, ask func(ctx context.Context) (T, error)) (T, error) {
	t.Helper()
	type reply struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := make(chan reply, 1)
	go func() {
		v, err := ask(ctx)
		c <- reply{v, err}
	}()
	for {
		select {
		case r := <-s.tell.Status.Requests():
			s.answerClient(r)
		case r := <-c:
			return r.v, r.err
		case <-ctx.Done():
			t.Fatal("no answer")
		}
	}
}

// commanded has a client that stays ask for a command.
func (s *stand) commanded(cmd control.Command) (<-chan control.Result, error) {
	s.t.Helper()
	return asks(s.t, s, func(context.Context) (<-chan control.Result, error) {
		return s.tell.Status.Source().Do(context.Background(), cmd)
	})
}

// status is what a client would get.
func (s *stand) status() *control.Status { return s.tell.Status.Of(s.statusFacts()) }

// textfileStand is a watcher with --textfile, opened.
func textfileStand(t *testing.T) (s *stand, dir string) {
	dir = t.TempDir()
	s = opened(t, func(o *Options) {
		o.Settings.Textfile, o.Settings.RunID, o.Settings.Version = dir, "run-7", "v1"
	})
	t.Cleanup(func() { s.tell.Textfile.Close(); <-s.tell.Textfile.Removed })
	return s, dir
}

// shown is what stands in the one file of a directory, empty for none.
func shown(dir string) string {
	names, _ := filepath.Glob(dir + "/*.prom")
	if len(names) != 1 {
		return ""
	}
	b, _ := os.ReadFile(names[0])
	return string(b)
}

func shows(t *testing.T, dir string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		wardentest.Until(t, line, func() bool { return strings.Contains(shown(dir), line+"\n") })
	}
}

// TestStatus: ranks and processes are shown as they were read.
func TestStatus(t *testing.T) {
	s, id := answering(t)
	m := s.otherRank(1, 300*rss.MiB).Me
	s.meet()
	s.full()
	st, err := asks(t, s, s.tell.Status.Source().Status)
	wardentest.NoError(t, err)
	if st.V != 1 || st.Job != "46" || st.Node != "n1" || st.Leader != s.Self || len(st.Limits) == 0 || !st.Time.Equal(s.view.Sample.At) {
		t.Errorf("status %+v", st)
	}
	if len(st.Ranks) != 2 {
		t.Fatalf("ranks %+v", st.Ranks)
	}
	mine, other := st.Ranks[0], st.Ranks[1]
	if !mine.Leads || mine.Task != 0 || mine.Workers != 2 || mine.Hook != "recycle" || mine.Anon != 550*rss.MiB || mine.Procs != 4 {
		t.Errorf("our rank %+v", mine)
	}
	if other.Leads || other.Task != 1 || other.PID != m.Command.PID || other.RSS != 300*rss.MiB || other.Procs != 1 || other.Hook != "off" || other.Why == "" {
		t.Errorf("the other rank %+v", other)
	}
	roles := map[rss.Role]int{}
	for _, p := range st.Procs {
		roles[p.Role]++
		if (p.Role == rss.RoleWorker) != p.CanRecycle {
			t.Errorf("process %+v", p)
		}
		if p.PID == m.Command.PID && p.Task != 1 || p.PID == id.PID && p.Task != 0 {
			t.Errorf("process %d is of task %d", p.PID, p.Task)
		}
	}
	if roles[rss.RoleWorker] != 2 || roles[rss.RoleTrainer] != 1 {
		t.Errorf("roles %v", roles)
	}
	if _, err := json.Marshal(st); err != nil {
		t.Error(err)
	}
}

// TestStatusIsAsNewAsTheLoop: a status is kept for the next client until the loop wakes or
// begins a request.
func TestStatusIsAsNewAsTheLoop(t *testing.T) {
	s, _ := answering(t)
	source := s.tell.Status.Source()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	kept := func() bool {
		_, err := source.Status(gone) // answered only where it need not wait
		return err == nil
	}
	recycle := func() {
		if _, err := s.commanded(control.Command{Do: event.ActionRecycle}); err != nil {
			t.Error(err)
		}
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for name, happens := range map[string]func(){
		"a failure of a sink": func() { s.bell.Ring(sinkFailed); s.turn(timer) },
		"a signal":            func() { s.holder.messages <- hold.Signal{Signal: 10}; s.turn(timer) },
		"a command":           recycle,
	} {
		if _, err := asks(t, s, source.Status); err != nil || !kept() {
			t.Fatalf("before %s: kept %v, %v", name, kept(), err)
		}
		if happens(); kept() {
			t.Errorf("after %s a client gets the status from before", name)
		}
	}
}

// TestAskedToRecycle: workers are replaced one after the other, and each is reported, while
// others are refused; status has the outcomes with what was decided. Scene "control" has the
// same run as a list of events.
func TestAskedToRecycle(t *testing.T) {
	s, id := answering(t)
	recycle := control.Command{Do: event.ActionRecycle, By: 4711}
	results, err := s.commanded(recycle)
	wardentest.NoError(t, err)
	first := s.acts.InFlight().Acted.Procs[0].ID.PID
	var refused *control.Refused
	if _, err = s.commanded(recycle); !errors.As(err, &refused) || refused.Reason != event.ReasonOccupied {
		t.Errorf("a second command meanwhile: %v", err)
	}
	s.fs.End(first)
	s.put(worker3, id.PID, 100*rss.MiB, 0)
	s.log(id, `"what":"recycled","id":1,"n":1,"worker":`+itoa(first)+`,"new":5000013,"pause_ms":7,"mode":"drain"`)
	s.full()
	if r := <-results; r.PID != first || !r.OK || r.Task != 0 || r.Paused != 0.007 || r.Freed == 0 {
		t.Errorf("first result %+v", r)
	}
	second := s.acts.InFlight().Acted.Procs[0].ID.PID
	s.log(id, `"what":"refused","id":2,"n":1,"worker":`+itoa(second)+`,"why":"the loader ends"`)
	s.full()
	if r := <-results; r.PID != second || second == first || r.OK || r.Reason != event.ReasonUnsupported {
		t.Errorf("second result %+v", r)
	}
	if r := <-results; !r.Done || r.OK {
		t.Errorf("last result %+v", r)
	}
	if _, more := <-results; more {
		t.Error("the answer goes on")
	}
	outcomes, last := named(s.events(), event.NameOutcome), s.status().Last
	if len(outcomes) != 2 || len(last) != 2 {
		t.Fatalf("%d outcomes, in the status %+v", len(outcomes), last)
	}
	for i, o := range last {
		wardentest.Has(t, outcomes[1-i], "seq", float64(o.Seq), "decision", float64(o.Decision))
		if o.V != 1 || o.Event != event.NameOutcome || o.Time.IsZero() || o.Action != event.ActionRecycle || o.Rule != event.AskedFor || o.By != 4711 || o.Name() != "recycle" {
			t.Errorf("outcome %+v does not say what was decided", o)
		}
	}
}

// TestAskedForOneThatIsNoWorker: of the processes that were named each has its line, and the
// answer is not that all did it.
func TestAskedForOneThatIsNoWorker(t *testing.T) {
	s, id := answering(t)
	results, err := s.commanded(control.Command{Do: event.ActionRecycle, PIDs: []int{theCommand, worker1}})
	wardentest.NoError(t, err)
	if r := <-results; r.PID != theCommand || r.OK || r.Reason != event.ReasonNoWorker || !strings.Contains(r.Detail, "is no worker") {
		t.Errorf("first result %+v", r)
	}
	s.fs.End(worker1)
	s.put(worker3, id.PID, 100*rss.MiB, 0)
	s.log(id, `"what":"recycled","id":1,"n":1,"worker":`+itoa(worker1)+`,"new":5000013,"pause_ms":7,"mode":"drain"`)
	s.full()
	if r := <-results; r.PID != worker1 || !r.OK {
		t.Errorf("second result %+v", r)
	}
	if r := <-results; !r.Done || r.OK {
		t.Errorf("last result %+v", r)
	}
}

// TestRefusedRequests: what cannot be done is refused, with the reason.
func TestRefusedRequests(t *testing.T) {
	s, _ := answering(t)
	s.otherRank(1, 300*rss.MiB)
	s.meet()
	s.full()
	for _, c := range []struct {
		name       string
		cmd        control.Command
		want, hint string
		reason     event.Reason
	}{
		{"no such rank", control.Command{Do: event.ActionTrim, Ranks: []int{9}}, "no rank 9 on this node", "", event.ReasonNotWatched},
		{"no such process", control.Command{Do: event.ActionRecycle, PIDs: []int{1}}, "process 1 is none that is watched here", "", event.ReasonNotWatched},
		{"not a worker", control.Command{Do: event.ActionRecycle, PIDs: []int{theCommand}}, "no process to recycle: process 5000001 is no worker of a loader or pool that can", "rsswarden doctor", event.ReasonNoWorker},
		{"a rank without a hook", control.Command{Do: event.ActionRecycle, Ranks: []int{1}}, "rank 1: no process to recycle: hook off: no DataLoader or pool workers found", "rsswarden doctor -- PYTHON", event.ReasonNoWorker},
		{"… which is trimmed otherwise", control.Command{Do: event.ActionTrim, Ranks: []int{1}}, "rank 1: no process to trim: hook off: no DataLoader or pool workers found", "rsswarden trim without --rank, on the node, does it by ptrace", event.ReasonNoWorker},
		{"no signal", control.Command{Do: event.ActionSignal}, "no signal is known", "--checkpoint-signal", event.ReasonUnsupported},
		{"a bad signal", control.Command{Do: event.ActionSignal, Signal: "NOSUCH"}, `cannot send "NOSUCH": unknown signal`, "signals are written", event.ReasonUnsupported},
		{"one that cannot be caught", control.Command{Do: event.ActionSignal, Signal: "KILL"}, `cannot send "KILL": no process can catch this signal`, "USR1", event.ReasonUnsupported},
		{"not caught", control.Command{Do: event.ActionSignal, Signal: "USR1"}, "does not catch", "handler", event.ReasonNotCaught},
		{"a stop", control.Command{Do: event.ActionStop}, "cannot be asked for", "", event.ReasonUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.commanded(c.cmd)
			var refused *control.Refused
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || refused.Reason != c.reason {
				t.Fatalf("%v, want %q, %q", err, c.want, c.reason)
			}
			if (refused.Hint == "") != (c.hint == "") || !strings.Contains(refused.Hint, c.hint) {
				t.Errorf("hint %q, want %q", refused.Hint, c.hint)
			}
			s.does("")
		})
	}
	s.Settings.DryRun = true
	if _, err := s.commanded(control.Command{Do: event.ActionTrim}); err == nil || !strings.Contains(err.Error(), "--dry-run") {
		t.Errorf("in a dry run: %v", err)
	}
}

// TestCheckpointOfOneRank: of the ranks that do not catch a signal only the one is
// named that was asked for, and of those that do only that one is asked.
func TestCheckpointOfOneRank(t *testing.T) {
	s := leading(t, inJob(t, 0, runtimeDir(t)))
	s.open(s.holder.begin)
	m := s.otherRank(1, 300*rss.MiB).Me
	s.meet()
	s.full()
	ask := func(rank int) ([]control.Result, error) {
		c, err := s.commanded(control.Command{Do: event.ActionSignal, Signal: "USR1", Ranks: []int{rank}})
		if err != nil {
			return nil, err
		}
		var all []control.Result
		for r := range c {
			all = append(all, r)
		}
		return all, nil
	}
	_, err := ask(1)
	if want := "rank 1: the process does not catch this signal: USR1, process " + itoa(m.Command.PID); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	s.catches(theCommand, "0000000000000200") // USR1
	s.catches(m.Command.PID, "0000000000000200")
	all, err := ask(1)
	if err != nil || len(all) != 2 || all[0].PID != m.Command.PID || all[0].Task != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestTextfile: what a run tells from its first look until its end.
func TestTextfile(t *testing.T) {
	s, dir := textfileStand(t)
	at := `node="` + s.tell.Run.Node + `",run="` + s.tell.Run.Label() + `"`
	shows(t, dir,
		`rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 104857600`,
		`rsswarden_job_memory_limit_bytes{`+at+`,limit="user"} 1048576000`,
		`rsswarden_job_limit_ratio{`+at+`,limit="user"} 0.1`,
		`rsswarden_processes{`+at+`,role="other"} 1`,
		`rsswarden_memory_rss_bytes{`+at+`,role="other"} 104857600`,
		`rsswarden_actions_total{`+at+`,action="warn",outcome="done"} 0`,
		`rsswarden_actions_total{`+at+`,action="trim",outcome="refused"} 0`,
		`rsswarden_actions_total{`+at+`,action="worker_trim",outcome="done"} 0`,
		`rsswarden_oom_kills_total{`+at+`} 0`,
		`rsswarden_ranks{`+at+`} 1`,
		`rsswarden_build_info{`+at+`,version="v1"} 1`,
	)
	// The reference says which are a run's.
	for l := range strings.Lines(string(s.tell.Textfile.Metrics(s.looked(), nil, nil).Text())) {
		name, isName := strings.CutPrefix(l, "# HELP ")
		name, _, _ = strings.Cut(name, " ")
		if isName && !slices.ContainsFunc(metrics.All, func(m *metrics.Metric) bool { return m.Name == name && m != &metrics.OOMUnheard }) {
			t.Errorf("%s is not of a run", name)
		}
	}
	// It is written each 15 s, whatever is looked at meanwhile.
	s.put(theCommand, theHolder, 200*rss.MiB, 0)
	for range 7 {
		s.later(2 * time.Second)
		s.full()
	}
	if text := shown(dir); !strings.Contains(text, " 104857600\n") {
		t.Errorf("written before 15 s:\n%s", text)
	}
	s.later(2 * time.Second)
	s.full()
	shows(t, dir, `rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 209715200`)
	// And at once where something was decided. Trim is of no use here.
	s.put(theCommand, theHolder, 860*rss.MiB, 0)
	s.later(time.Second)
	s.full()
	shows(t, dir,
		`rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 901775360`,
		`rsswarden_actions_total{`+at+`,action="warn",outcome="done"} 1`,
		`rsswarden_actions_total{`+at+`,action="trim",outcome="refused"} 1`,
	)
	s.end(&hold.Exit{})
	// What stays is how many runs of the user have ended, and how.
	if text := shown(dir); !strings.Contains(text, `outcome="tight"} 1`) || strings.Count(text, "} 1\n") != 1 || strings.Contains(text, "rsswarden_ranks") {
		t.Errorf("left at the end:\n%s", text)
	}
}

// TestTextfileOfOneKilled: a watcher that was started again, and does not lead now, takes
// away what it told before.
func TestTextfileOfOneKilled(t *testing.T) {
	s, dir := textfileStand(t)
	s.full()
	shows(t, dir, "# TYPE rsswarden_ranks gauge")
	s.tell.Textfile.Drop()
	wardentest.Until(t, "the file is gone", func() bool { return shown(dir) == "" })
}

// telling has the alerts of a stand carried by a program that keeps each request as a
// file, and returns where.
func telling(t *testing.T, kind alert.Kind) (dir string, change func(*Options)) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(dir, "carry")
	script := "#!/bin/sh\ncat > " + dir + "/$$.new && mv " + dir + "/$$.new " + dir + "/$$.json\necho '{\"taken\":99}'\n"
	wardentest.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	return dir, func(o *Options) {
		o.Settings.AlertProgram, o.Settings.AlertToken = program, "t0ken"
		o.Settings.Alerts = []alert.Target{{Kind: kind, URL: "http://me:s3cret@h/x?y"}}
	}
}

// carried waits until so many messages were carried and returns all, by their start.
func carried(t *testing.T, dir string, n int) (all []alert.Message) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		all = nil
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			wardentest.NoError(t, err)
			var r alert.Request
			wardentest.NoError(t, json.Unmarshal(b, &r))
			if r.Token != "" {
				t.Error("what has a user of its own got the token")
			}
			for _, body := range r.Bodies {
				var m alert.Message
				wardentest.NoError(t, json.Unmarshal(body, &m))
				all = append(all, m)
			}
		}
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages, want %d", len(all), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const commentedJob = "JobId=46 JobName=train\n   UserId=me(1000) GroupId=me(1000)\n   JobState=RUNNING Reason=None\n   Comment=for paper 3 \n   Power=\n   \n\n"

func commentingStand(t *testing.T, env map[string]string, changes ...func(*Options)) (*stand, fakeSlurm) {
	t.Helper()
	f := newFakeSlurm(t)
	f.write(t, "job", commentedJob)
	s := inJob46(t, env, append(changes, func(o *Options) { o.Settings.Rules, o.Settings.AlertComment = mustRules("80%:warn"), true })...)
	return s, f
}

// written waits for what is being written into the comment.
func (s *stand) written() error {
	s.t.Helper()
	over := s.tell.Alerts.Comment.Writing()
	if over == nil {
		s.t.Fatal("nothing is being written")
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		s.t.Fatal("it is never written")
	}
	select {
	case e := <-s.tell.Failures():
		s.tell.Failed(s.now(), e)
		return e
	default:
		return nil
	}
}

// TestAlerts: a crossed rung is sent, and its resolution when the command has ended.
func TestAlerts(t *testing.T) {
	dir, with := telling(t, alert.Webhook)
	s := opened(t, with)
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	m := carried(t, dir, 1)[0]
	if m.Status != alert.Firing || m.Alert != "RsswardenMemoryNearLimit" || m.Limit != event.LimitUser || m.Rung != "80%" || m.Action != event.ActionWarn ||
		*m.UsedBytes != uint64(850*rss.MiB) || *m.LimitBytes != uint64(1000*rss.MiB) || !strings.Contains(m.Text, "memory 85 % of 1000 MiB (--limit, summed RSS)") {
		t.Errorf("%+v", m)
	}
	deadline := time.Now().Add(time.Minute)
	for s.status().Alerts[0].Sent == 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := s.status().Alerts; len(got) != 1 || got[0].Firing != 1 || got[0].Receiver != "webhook+http://h/…" || got[0].SentAt == nil {
		t.Errorf("status: %+v", got)
	}
	s.end(&hold.Exit{})
	all := carried(t, dir, 2)
	i := slices.IndexFunc(all, func(m alert.Message) bool { return m.Status == alert.Resolved })
	if i < 0 || all[i].ID != m.ID || all[i].EndsAt == nil {
		t.Errorf("at the end: %+v", all)
	}
	b, err := os.ReadFile(s.Settings.Events)
	wardentest.NoError(t, err)
	for _, secret := range []string{"s3cret", "t0ken"} {
		if strings.Contains(string(b), secret) || strings.Contains(s.stderr(), secret) {
			t.Errorf("%s was told", secret)
		}
	}
}

// TestAlertComment: a warning and the end follow what the user has in the
// job's comment.
func TestAlertComment(t *testing.T) {
	s, f := commentingStand(t, nil)
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	wardentest.NoError(t, s.written())
	s.full() // writes the comment
	if s.tell.Alerts.Comment.Writing() != nil {
		t.Error("written again")
	}
	s.end(&hold.Exit{})
	calls := f.calls(t)
	if len(calls) != 2 || !strings.HasPrefix(calls[0], "update JobId=46 Comment=for paper 3; rsswarden: memory by --limit 85 % of 1000 MiB on n1 at ") ||
		!strings.HasPrefix(calls[1], "update JobId=46 Comment=for paper 3; rsswarden: ended, tight; at most 85 % of 1000 MiB on n1") {
		t.Errorf("%q", calls)
	}
}

// TestAlertCommentOfOthers: another node than the first leaves it alone, and so does
// a dry run, which says what it would write.
func TestAlertCommentOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		env    map[string]string
		dry    bool
		stderr int
	}{
		"another node":   {map[string]string{"SLURM_NODEID": "1"}, false, 0},
		"another task":   {map[string]string{"SLURM_PROCID": "3"}, false, 0},
		"a dry run":      {nil, true, 2},
		"hangs at first": {map[string]string{"hang": "1"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := commentingStand(t, test.env, func(o *Options) { o.Settings.DryRun = test.dry })
			hangs := test.env["hang"] != ""
			if hangs {
				f.write(t, "wait-show", "")
				defer os.Remove(filepath.Join(string(f), "wait-show"))
			}
			s.put(theCommand, theHolder, 850*rss.MiB, 0)
			s.full()
			if (s.tell.Alerts.Comment.Writing() != nil) != hangs {
				t.Error("written")
			}
			began := time.Now()
			s.end(&hold.Exit{})
			if took := time.Since(began); hangs && took > time.Second+action.LastPatience {
				t.Errorf("the end took %v", took)
			}
			if n := len(f.calls(t)); n != 0 {
				t.Errorf("written %d times", n)
			}
			s.times(test.stderr, "would set the comment of job 46: rsswarden: ")
		})
	}
}

// TestAlertCommentOfRanks: the leader writes the last words of its rank, whether another one
// leads after it or all end with it; and so does its successor, which is not the
// job's first task.
func TestAlertCommentOfRanks(t *testing.T) {
	f := newFakeSlurm(t)
	f.write(t, "job", commentedJob)
	dir := runtimeDir(t)
	_, oursID := rsstest.Sleeper(t)
	_, theirsID := rsstest.Sleeper(t)
	first := newRank(t, nil, dir, 0, "0", oursID, "80%:warn")
	second := newRank(t, first, dir, 1, "0", theirsID, "80%:warn")
	first.Settings.AlertComment, second.Settings.AlertComment = true, true
	first.leads()
	second.follows()
	first.meets(1, 0)
	first.ended(0)
	second.takesOver()
	second.open(second.holder.begin)
	second.meet()
	second.full()
	second.ended(0)
	calls := f.calls(t)
	if len(calls) != 2 || !strings.HasPrefix(calls[0], "update JobId=46 Comment=for paper 3; rsswarden: rank 0 ended, ok") ||
		!strings.HasPrefix(calls[1], "update JobId=46 Comment=for paper 3; rsswarden: ended, ") {
		t.Errorf("%q", calls)
	}
}
