package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestDoctorTriesAlerts: each receiver that a run would have gets one alert that says
// that nothing is wrong, and the result is printed without a secret.
func TestDoctorTriesAlerts(t *testing.T) {
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/no/s3cret" {
			http.Error(w, "no "+req.Header.Get("Authorization"), http.StatusForbidden)
			return
		}
		b, _ := io.ReadAll(req.Body)
		got <- req.URL.Path + " " + string(b)
	}))
	defer server.Close()
	try := func(alerts string, args ...string) (checks []doctor.Check) {
		t.Helper()
		cmd := exec.Command(binary, slices.Concat([]string{"doctor", "--json"}, args, []string{"/bin/true"})...)
		cmd.Env = wardentest.Env("RSSWARDEN_ALERT=" + alerts)
		out, _ := cmd.Output() // the status is about memory
		var r doctor.Report
		if err := json.Unmarshal(out, &r); err != nil || strings.Contains(string(out), "s3cret") {
			t.Fatalf("%v\n%s", err, out)
		}
		return slices.DeleteFunc(r.Checks, func(c doctor.Check) bool { return c.Name != doctor.NameAlert })
	}
	all := strings.Join([]string{server.URL, server.URL + "/hook", server.URL + "/no/s3cret token=s3cret-token", "http://" + promtest.FreeAddr(t) + "/x"}, "\n")
	if checks := try(all); len(checks) != 0 || len(got) != 0 {
		t.Errorf("without --try-alerts: %+v, %d requests", checks, len(got))
	}
	checks := try(all, "--try-alerts")
	want := []struct {
		status doctor.Status
		says   string
	}{
		{doctor.OK, "took a test alert, RsswardenTest, which ends by itself"}, {doctor.OK, "/… took a test alert, and that it is over"},
		{doctor.Off, "/…: HTTP status 403: no Bearer ***"}, {doctor.Off, "/…: connection refused"},
	}
	for i, w := range want {
		if len(checks) != len(want) || checks[i].Status != w.status || !strings.Contains(checks[i].Found, w.says) {
			t.Fatalf("%+v", checks)
		}
	}
	var told []string
	for len(got) > 0 {
		path, body, _ := strings.Cut(<-got, " ")
		var m alert.Message
		if path == alert.APIPath {
			wardentest.Says(t, body, `"alertname":"RsswardenTest"`)
		} else if err := json.Unmarshal([]byte(body), &m); err != nil || m.Alert != "RsswardenTest" || !strings.Contains(m.Text, "nothing is wrong") {
			t.Errorf("%v: %s", err, body)
		}
		told = append(told, path+" "+m.Status)
	}
	if want := []string{alert.APIPath + " ", "/hook firing", "/hook resolved"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if checks := try("", "--try-alerts"); len(checks) != 1 || checks[0].Status != doctor.Off || !strings.Contains(checks[0].Do, "RSSWARDEN_ALERT") {
		t.Errorf("without a receiver: %+v", checks)
	}
}
