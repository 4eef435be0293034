package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/alert"
)

// This file has what --alert is given.

const (
	alertOption = "alert"
	alertToken  = "alert-token" // a variable only: everybody may read a command line
	// alertProgram carries alerts over the network, which this program links nothing
	// for.
	alertProgram = "rsswardend"
	mostReceiver = 8
)

// setAlerts sets the receivers. No error repeats a URL: a password may stand in it. Of
// several it is said which, as they were written.
func setAlerts(s *supervisor.Settings, values []string) error {
	const hint = "write it as http://alertmanager:9093, alertmanager+https://HOST/PATH or webhook+https://HOST/PATH"
	s.Alerts = nil
	for i, v := range values {
		t, err := alert.ParseTarget(v)
		if err != nil {
			return wrongf(hint, ": %s %v", whichOf(i, len(values)), err)
		}
		if !slices.Contains(s.Alerts, t) {
			s.Alerts = append(s.Alerts, t)
		}
	}
	if len(s.Alerts) > mostReceiver {
		return wrongf("let Alertmanager tell the others", " has %d receivers, and %d are the most", len(s.Alerts), mostReceiver)
	}
	return nil
}

// whichOf names a value that must not be repeated.
func whichOf(i, n int) string {
	if n == 1 {
		return "its value"
	}
	return fmt.Sprintf("value %d of %d", i+1, n)
}

func setAlertTokenFile(s *supervisor.Settings, v []string) error {
	s.AlertTokenFile = ""
	if v[0] == "" {
		return nil
	}
	path, err := filepath.Abs(v[0])
	if err != nil {
		return wrongf("give its full path", " %q: %v", v[0], err)
	}
	s.AlertTokenFile = path
	return nil
}

// shown is a value as it is told of: of --alert without what is secret.
func (o option) shown(v chosen) chosen {
	if o.name != alertOption {
		return v
	}
	v.values = slices.Clone(v.values)
	for i, text := range v.values {
		v.values[i] = alert.Redact(text)
	}
	return v
}

// alerts checks what the values of --alert by themselves do not tell, and finds who
// carries them. Where the site is to blame, the job runs without.
func (src *sources) alerts(v chosen, s *supervisor.Settings) error {
	s.AlertToken = src.p.get(variableOf(alertToken))
	if !src.has(alertOption) || len(s.Alerts) == 0 {
		s.Alerts = nil
		return nil
	}
	if i := slices.IndexFunc(s.Alerts, alert.Target.Secret); v.origin == originFlag && i >= 0 {
		return usagef("put it into the variable RSSWARDEN_ALERT or a file of --config; a token into RSSWARDEN_ALERT_TOKEN or RSSWARDEN_ALERT_TOKEN_FILE",
			"the URL of --alert for %v has a user, a query or a token, and everybody on this node can read a command line", s.Alerts[i])
	}
	path, err := src.sender()
	if err == nil {
		s.AlertProgram = path
		src.alertSecrets(v, s)
		return nil
	}
	const why = "the program " + alertProgram + ", which carries alerts, is neither beside " + programName + " nor in PATH"
	if !v.user() {
		src.warnf("%s is not used: %s", v.name, why)
		s.Alerts = nil
		return nil
	}
	return usagef("make install puts both into one directory; or leave --alert out", "%s: %s", v.name, why)
}

// sender finds the program beside our own, and then in PATH.
func (src *sources) sender() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), alertProgram)
		if executable(path) == nil {
			return path, nil
		}
	}
	path, err := src.p.lookPath(alertProgram)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
