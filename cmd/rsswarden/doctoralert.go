package main

import (
	"context"
	"os/exec"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// alerts tries the receivers that run would have.
func (d *diagnosis) alerts() (checks []doctor.Check) {
	s := &d.settings
	if len(s.Alerts) == 0 {
		return []doctor.Check{doctor.Alert(doctor.AlertFacts{Off: "no receiver of alerts is named"})}
	}
	p := alert.NewProgram(s.AlertProgram, hold.Environ(), (*exec.Cmd).Start)
	for _, t := range s.Alerts {
		a := alert.Try(context.Background(), slurm.NodeName(d.p.lookup), t, alert.Options{Token: s.AlertToken, TokenFile: s.AlertTokenFile, Send: p.Send})
		checks = append(checks, doctor.Alert(doctor.AlertFacts{Receiver: t.String(), Error: a.Error, Lasts: t.Kind == alert.Alertmanager}))
	}
	return checks
}
