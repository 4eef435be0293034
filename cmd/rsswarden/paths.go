package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// events refuses a file that can never be opened, if a user named it. What may change,
// such as a full disk or a permission, the run reports and goes on.
func (src *valueSources) events(v sourcedValue, s *settings.Settings) error {
	if s.Events == "" || ofDescriptor(s.Events) {
		return nil
	}
	err := src.ask(v, ioName, absolute(s.Events))
	if err == nil {
		return nil
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Events = ""
		return nil
	}
	hint := "make the directory first: mkdir -p " + filepath.Dir(s.Events)
	if errors.Is(err, syscall.EISDIR) {
		hint = "name a file in it, such as " + filepath.Join(s.Events, "events.jsonl")
	} else if errors.Is(err, syscall.ENOTDIR) {
		hint = "name a file in a directory, such as events.jsonl"
	}
	return usagef(hint, "%s %q cannot be written: %v", v.name, v, err)
}

// ask asks about a path of an option, and warns if there is no answer.
func (src *valueSources) ask(v sourcedValue, what ioKind, path string) error {
	q := ioRequest{What: what, Path: []byte(path)}
	r, err := q.answer(preparePatience, isLocal(path))
	if err != nil {
		src.warnf("%s %q: %v", v.name, v, err)
		return nil
	}
	return r.err()
}

// checkpointFile warns if the directory of the checkpoint is missing; the training may
// be about to make it.
func (src *valueSources) checkpointFile(v sourcedValue, s *settings.Settings) {
	if s.CheckpointFile == "" || !v.user() {
		return
	}
	dir := filepath.Dir(s.CheckpointFile)
	if err := src.ask(v, ioThere, dir); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		src.warnf("%s %q: there is no directory %s now; unless the command makes it, a requeue waits for this file until --checkpoint-timeout: check the name",
			v.name, v, dir)
	}
}

// textfile warns if no file of metrics can be kept there. A user's directory is tried
// again later; a site's is dropped.
func (src *valueSources) textfile(v sourcedValue, s *settings.Settings) {
	if s.Textfile == "" {
		return
	}
	err := askAside(ioTextfile, s.Textfile)
	if err == nil {
		return
	}
	if !v.user() {
		src.warnf("%s %q is not used: no file can be written there: %v", v.name, v, err)
		s.Textfile = ""
		return
	}
	hint := "name a directory in which you may write, as node_exporter's --collector.textfile.directory"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "make it, as node_exporter's --collector.textfile.directory says; it must be on this node"
	}
	s.TextfileFault = err.Error()
	src.warnf("%s %q: no file can be written there: %v; it is tried again; %s", v.name, v, err, hint)
}

// leftTextfile is how long a file of metrics may take to be removed.
const leftTextfile = 200 * time.Millisecond

// removeTextfile removes what a killed watcher has left. A directory that hangs must not
// delay the command's exit status.
func removeTextfile(s *settings.Settings) {
	if s.Textfile == "" {
		return
	}
	q := ioRequest{What: ioRemove, Path: []byte(s.Textfile), Holder: os.Getpid()}
	_, _ = q.answer(leftTextfile, isLocal(s.Textfile))
}

// alerts checks the values of --alert together, and finds the program that carries
// alerts. A site's mistake leaves the job without alerts.
func (src *valueSources) alerts(v sourcedValue, s *settings.Settings) error {
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
func (src *valueSources) sender() (string, error) {
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

// alertSecrets warns of secrets that others can read, that go nowhere, or that cannot be
// read.
func (src *valueSources) alertSecrets(v sourcedValue, s *settings.Settings) {
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
func (src *valueSources) tokenFile(path string) {
	if err := askAside(ioToken, absolute(path)); err != nil {
		src.warnf("--alert: %v; no alert is sent before it can be read; write it into the first line of a file that you alone may read", err)
	}
}

// record makes the directory of the record. A failure does not keep the job from
// running.
func (src *valueSources) record(v sourcedValue, s *settings.Settings) {
	if s.Record == settings.RecordAuto || s.Record == settings.RecordNone {
		return
	}
	err := askAside(ioRecord, s.Record)
	var unanswered *hold.UnansweredError
	if errors.As(err, &unanswered) {
		err = fmt.Errorf("%s: %w", s.Record, err)
	}
	if err == nil {
		return
	}
	if !v.user() {
		src.warnf("%s %q is not used: %v", v.name, v, err)
		s.Record = settings.RecordAuto
		return
	}
	s.RecordFault = err.Error()
	kept := "; the journal is kept"
	// That of an attach lies where its target's environment says.
	if journals := record.DefaultPlaces(src.p.lookup, os.Geteuid()).Journals; len(journals) > 0 && src.c.Command.Name == "run" {
		kept += ", in " + journals[0]
	}
	src.warnf("%s %q: there is no full record of this run: %v%s; give a directory on a disk of this node, as --record $TMPDIR, or leave it out", v.name, v, err, kept)
}
