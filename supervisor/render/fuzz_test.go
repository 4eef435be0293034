package render

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// FuzzReport reports journals that anybody may have written: no panic, and
// nothing that moves a cursor comes out.
func FuzzReport(f *testing.F) {
	for _, text := range []string{
		`{"v":1,"event":"run","run":{"v":1,"id":"a","node":"n","start":"2026-11-20T12:00:00Z","job":{"id":"1","step":"0","end":"2026-11-20T12:00:05Z"}}}
{"event":"sample","time":"2026-11-20T12:00:01Z","limits":[{"limit":"cgroup","scope":"job","used_bytes":99,"limit_bytes":100,"eta_s":3,"level":"/a/job_1"},{"limit":"maps","used_bytes":9,"limit_bytes":10}],"roles":[{"role":"trainer","count":1,"rss_bytes":5}]}
{"event":"signal","time":"2026-11-20T12:00:04Z","signal":"SIGTERM","comm":"x"}
{"event":"decision","time":"2026-11-20T12:00:04Z","id":1,"rule":"85%:trim","limit":"cgroup","action":"trim"}
{"event":"outcome","time":"2026-11-20T12:00:04Z","decision":1,"ok":true,"freed_bytes":7}
{"event":"diagnosis","time":"2026-11-20T12:00:04Z","finding":"prefetch queue","confidence":"certain","role":"worker","bytes":7,"evidence":["\u001b[2J"],"advice":["a\nb"]}
{"event":"cure","time":"2026-11-20T12:00:04Z","remedy":"nofile","before":-9223372036854775808,"after":1,"reason":"\u0007"}
{"event":"loader","time":"2026-11-20T12:00:05Z","what":"pickling","pid":7,"sharing":{"start_method":"spawn","fds_needed":-5,"fds_limit":1,"maps_needed":9,"maps_limit":3}}
{"event":"exit","time":"2026-11-20T12:00:06Z","by":"command","code":137,"kernel_oom_kills":[{"level":"/a","kills":1,"leaf":true}]}
`,
		`{"v":1,"event":"run","run":{"v":1,"id":"a"}}
{"event":"sample","limits":[{"limit":"slurm","used_bytes":18446744073709551615,"limit_bytes":1,"eta_s":1e300}]}
`,
	} {
		f.Add([]byte(text), "OUT_OF_MEMORY", "0:9")
	}
	f.Fuzz(func(t *testing.T, b []byte, state, code string) {
		path := filepath.Join(t.TempDir(), "journal")
		wardentest.NoError(t, os.WriteFile(path, b, 0o600))
		r, err := record.ReadJournal(path)
		if err != nil {
			return
		}
		said := &analysis.SlurmSays{Source: "sacct", State: state, ExitCode: code, ReqMem: code, Steps: []analysis.StepSays{{ID: "1.0", State: state, By: "0", ExitCode: code}}}
		for _, s := range []*analysis.SlurmSays{nil, said} {
			var text, table bytes.Buffer
			rep := told([]*record.Run{r}, s, time.Unix(1e9, 0))
			wardentest.NoError(t, Text(&text, rep, values.Style{}, true))
			wardentest.NoError(t, CSV(&table, []*record.Run{r}))
			if s := strings.ReplaceAll(text.String(), "\n", ""); values.Plain(s) != s {
				t.Errorf("control characters in %q", s)
			}
		}
	})
}
