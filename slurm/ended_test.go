package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
)

// said is what sacct and scontrol printed of real jobs, by names.
func said(t testing.TB) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/ended.txtar")
	must(t, err)
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	return texts
}

// TestParseEnded reads what was said of real jobs. Of a name that looks like fields, "x
// JobState=COMPLETED UserId=1", nothing is believed.
func TestParseEnded(t *testing.T) {
	texts := said(t)
	texts["requeued, the last time it ran"] = texts["sacctOOM"] + strings.ReplaceAll(texts["sacctCompleted"], "1|1|", "5|5|")
	texts["a name with a bar"] = strings.ReplaceAll(texts["sacctNeverRan"], "train.sh", "a|b")
	var b strings.Builder
	for _, c := range []struct{ text, job string }{
		{"sacctCompleted", "1"}, {"sacctNeverRan", "3"}, {"sacctTimeout", "4"}, {"sacctOOM", "5"}, {"sacctSteps", "6"}, {"sacctArray", "7"},
		{"sacctArray", "7_0"}, {"sacctOverMemory", "10"}, {"sacctCancelled", "11"}, {"requeued, the last time it ran", "5"}, {"a name with a bar", "3"},
		{"sacctArray", "9999"}, {"showFailed", "2"}, {"showOOM", "4"}, {"showArray", "8"}, {"showArray", "6_0"}, {"showTimeout", "9"}, {"showOOM", "5"},
	} {
		parse := parseSacct
		if strings.HasPrefix(c.text, "show") {
			parse = parseShowJob
		}
		got, err := parse([]byte(texts[c.text]), c.job, time.UTC)
		is, _ := json.MarshalIndent(got, "", "  ")
		fmt.Fprintf(&b, "# %s, job %s: ID %q, %v\n%s\n", c.text, c.job, got.ID, err, is)
	}
	golden.Check(t, "testdata/ended.golden", b.String())
	for _, parse := range []func([]byte, string, *time.Location) (EndedJob, error){parseSacct, parseShowJob} {
		if _, err := parse(make([]byte, maxSaid+1), "1", time.UTC); err == nil || errors.Is(err, ErrNoJob) {
			t.Errorf("an answer without end was read: %v", err)
		}
	}
}

func TestEnded(t *testing.T) {
	texts, disabled := said(t), errors.New("Slurm accounting storage is disabled")
	for _, test := range []struct {
		name, job   string
		sacct, show string // empty for an error
		source      string
	}{
		{"sacct knows", "5", "sacctOOM", "", "sacct"},
		{"no accounting", "4", "", "showOOM", "scontrol show job"},
		{"not in the accounting", "4", "sacctCompleted", "showOOM", "scontrol show job"},
		{"by its SLUID", "s46HM84SHMGW00", "sacctOOM", "", "sacct"},
		{"by its SLUID, no accounting", "s46HM84SHMGW00", "", "showOOM", "scontrol show job"},
		{"unknown", "4", "", "", ""},
		{"an option", "--all", "sacctOOM", "showOOM", ""},
		{"a list", "4,5", "sacctOOM", "showOOM", ""},
	} {
		j, err := Ended(t.Context(), func(_ context.Context, name string, _ ...string) ([]byte, error) {
			out := texts[map[string]string{"sacct": test.sacct, "scontrol": test.show}[name]]
			if out == "" {
				return nil, disabled
			}
			return []byte(out), nil
		}, test.job)
		if j.Source != test.source || (err == nil) != (test.source != "") {
			t.Errorf("%s: %+v, %v", test.name, j, err)
		}
	}
}

func FuzzParseEnded(f *testing.F) {
	texts := said(f)
	texts["bar"], texts["no name"] = "1|1||||||||||||a|b", "JobId=1 JobName= UserId= JobState=X"
	for _, text := range texts {
		f.Add([]byte(text), "6")
	}
	f.Fuzz(func(t *testing.T, b []byte, job string) {
		for _, parse := range []func([]byte, string, *time.Location) (EndedJob, error){parseSacct, parseShowJob} {
			j, err := parse(b, job, time.UTC)
			if err == nil && (j.ID == "" || j.State == "" || strings.ContainsAny(j.State, " \n")) {
				t.Errorf("%q: no job in %+v", b, j)
			}
			if err != nil && !cmp.Equal(j, EndedJob{}) {
				t.Errorf("%q: %+v beside %v", b, j, err)
			}
		}
	})
}
