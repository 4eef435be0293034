package integrations_test

import (
	"strings"
	"testing"
)

// TestApptainer: from a container whose environment is kept the loader hook says hello;
// from one in which something keeps it out rsswarden says what, and with the script
// here it does say hello.
func TestApptainer(t *testing.T) {
	t.Parallel()
	need(t, []string{"bwrap"}, "torch")
	for name, c := range map[string]struct {
		start string
		says  string // of what keeps it out; empty where nothing does
		cure  string // … with what to do
	}{
		"kept":             {start: "rsswarden run -- apptainer exec image.sif"},
		"cleaned":          {"rsswarden run -- apptainer exec --cleanenv image.sif", "neither RSSWARDEN_DIR nor the hook's directory on PYTHONPATH is in its environment", "pass RSSWARDEN_DIR and PYTHONPATH on"},
		"PID numbers":      {"rsswarden run -- apptainer exec --pid image.sif", "it is in a PID namespace of its own, where the hook does nothing", "leave out what makes that namespace"},
		"contained":        {"rsswarden run -- apptainer exec --contain --bind @dir/work image.sif", "it does not see @dir/rsswarden-", "(of Apptainer --bind)"},
		"cleaned, cured":   {start: "train.sh --cleanenv image.sif"},
		"contained, cured": {start: "train.sh --contain --bind @dir/work image.sif"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "apptainer/train.sh", "testdata/apptainer")
			p.write(p.file("work/loads.py"), p.read("testdata/loads.py"))
			words := append(strings.Fields(strings.ReplaceAll(c.start, "@dir", p.dir)), python)
			r := p.start(append(words, "work/loads.py", "work/enough", "bare")...)
			want := "event=loader what=hello"
			if c.says != "" {
				want = "event=loader what=unreached"
			}
			e := r.event(want)
			p.enough()
			if status := r.ends(); status != 7 || !strings.Contains(r.stdout.String(), "down") {
				t.Errorf("status %d, stdout %q", status, &r.stdout)
			}
			says := strings.ReplaceAll(c.says, "@dir", p.dir)
			if why, _ := e["reason"].(string); c.says != "" && !strings.Contains(why, says) {
				t.Errorf("the event says %q, want %q", why, says)
			}
			told := strings.Count(r.stderr.String(), "the loader hook does not reach process ")
			if c.says != "" && (told != 1 || !strings.Contains(r.stderr.String(), c.cure)) || c.says == "" && told != 0 {
				t.Errorf("stderr:\n%s", &r.stderr)
			}
			t.Logf("%s", &r.stderr)
		})
	}
}
