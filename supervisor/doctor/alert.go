package doctor

import (
	"context"
	"os/exec"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// alertFacts is what came of an alert that was tried.
type alertFacts struct {
	Receiver string // without what is secret
	Error    string // what the receiver said, or what kept it from being told
	Lasts    bool   // it ends by itself after a minute
}

// alertCheck judges one receiver.
func alertCheck(f alertFacts) Check {
	c := Check{Name: NameAlert}
	switch {
	case f.Error != "":
		return c.as(Off, "check the URL, and what the receiver is to know us by, in RSSWARDEN_ALERT", "%s: %s", f.Receiver, f.Error)
	case f.Lasts:
		return c.as(OK, "", "%s took a test alert, RsswardenTest, which ends by itself after a minute; whom it notifies is its own route", f.Receiver)
	}
	return c.as(OK, "", "%s took a test alert, and that it is over", f.Receiver)
}

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
		checks = append(checks, alertCheck(alertFacts{Receiver: t.String(), Error: a.Error, Lasts: t.Kind == alert.Alertmanager}))
	}
	return checks
}
