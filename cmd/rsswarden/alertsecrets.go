package main

import (
	"errors"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/alert"
)

// alertSecrets warns of secrets of --alert that others can read, that go nowhere, or that
// cannot be read.
func (src *sources) alertSecrets(v chosen, s *supervisor.Settings) {
	if v.origin == originFlag && slices.ContainsFunc(s.Alerts, alert.Target.Pathed) {
		src.warnf("--alert: everybody on this node can read a command line, and the path of a webhook is often its key; put the URL into RSSWARDEN_ALERT, one a line, or a file of --config")
	}
	given, taken := s.AlertToken != "" || s.AlertTokenFile != "", false
	for _, t := range s.Alerts {
		taken = taken || t.TakesToken()
		if t.Plain() && (t.Knows() || given && t.TakesToken()) {
			src.warnf("--alert: what %v is to know us by goes there in plain, and can be read on the way; use https://", t)
		}
		if t.TokenFile != "" {
			src.tokenFile(t.TokenFile)
		}
	}
	switch {
	case given && !taken:
		src.warnf("the token for alerts goes to no receiver: it is for Alertmanagers without a user of their own; write token-file=FILE behind the URL of another, in RSSWARDEN_ALERT or a file of --config")
	case s.AlertTokenFile != "":
		src.tokenFile(s.AlertTokenFile)
	}
}

// tokenFile warns where no token can be read yet.
func (src *sources) tokenFile(path string) {
	err, answered := within(func() error {
		_, err := alert.ReadToken(path)
		return err
	})
	if !answered {
		err = errors.New("its file system does not answer")
	}
	if err != nil {
		src.warnf("--alert: %v; nobody is told before one can be read; write it into the first line of a file that you alone may read", err)
	}
}
