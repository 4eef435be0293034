package doctor

import (
	"context"
	"os/exec"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// alerts tries the receivers that run would have.
func (d *prober) alerts() (checks []Check) {
	if !d.TryAlerts {
		return nil
	}
	if len(d.Alerts) == 0 {
		return []Check{Check{Name: NameAlert}.as(Off, "name receivers in RSSWARDEN_ALERT, one URL a line, or a file that RSSWARDEN_CONFIG names", "no receiver of alerts is named")}
	}
	p := alert.NewProgram(d.AlertProgram, hold.Environ(), (*exec.Cmd).Start)
	for _, t := range d.Alerts {
		a := alert.Try(context.Background(), slurm.NodeName(d.Lookup), t, alert.Options{Token: d.AlertToken, TokenFile: d.AlertTokenFile, Send: p.Send})
		c := Check{Name: NameAlert}.as(OK, "", "%s took a test alert, and that it is over", t)
		switch {
		case a.Error != "":
			c = c.as(Off, "check the URL, and what the receiver is to know us by, in RSSWARDEN_ALERT", "%s: %s", t, a.Error)
		case t.Kind == alert.Alertmanager:
			c = c.as(OK, "", "%s took a test alert, RsswardenTest, which ends by itself after a minute; its routes decide who is notified", t)
		}
		checks = append(checks, c)
	}
	return checks
}
