package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// asideCommand asks a file system that may not answer, in a process of its own; not for
// users. Whoever holds a command must be able to end when that has (see hold.Aside).
const asideCommand = "aside"

// looking is what such a process is asked. Paths need not be UTF-8, as a JSON string is.
type looking struct {
	What   asideWhat
	Path   []byte `json:",omitempty"`
	Env    []byte `json:",omitempty"` // what loader.Prepare looks at, NUL between
	Run    string `json:",omitempty"` // its name
	Holder int    `json:",omitempty"` // PID of who asks
}

type asideWhat string

const (
	asideConfig   asideWhat = "config"
	asideSite     asideWhat = "site" // the site's configuration
	asideRecord   asideWhat = "record"
	asideTextfile asideWhat = "textfile"
	asideToken    asideWhat = "token"
	asidePrepare  asideWhat = "prepare"
	asideRemove   asideWhat = "remove-textfile"
	asideName     asideWhat = "name" // whether a file can have it
	asideThere    asideWhat = "there"
)

// reply is what it came to.
type reply struct {
	Text      []byte        `json:",omitempty"` // of a file
	Dir, Hook []byte        `json:",omitempty"` // as loader.Prepared has them
	Passed    string        `json:",omitempty"` // … and that, as text
	Distrust  bool          `json:",omitempty"` // … Distrusted
	Swept     int           `json:",omitempty"`
	Error     string        `json:",omitempty"`
	Errno     syscall.Errno `json:",omitempty"` // that Error is of, 0 where it is of none
}

// err is the error as it was there, to errors.Is.
func (r *reply) err() error {
	if r.Error == "" {
		return nil
	}
	return &repliedError{r.Error, r.Errno}
}

type repliedError struct {
	says  string
	errno syscall.Errno
}

func (e *repliedError) Error() string { return e.says }

func (e *repliedError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// look answers a question. It may hang.
func (q *looking) look() (r reply) {
	defer func() {
		if what := recover(); what != nil {
			r = reply{Error: fmt.Sprintf("internal error: %v", what)}
		}
	}()
	var err error
	path := string(q.Path)
	switch q.What {
	case asideConfig:
		r.Text, err = config.Read(path)
	case asideSite:
		r.Text, err = config.ReadTrusted(path)
	case asideRecord:
		err = record.MakeDir(path)
	case asideName:
		err = canStand(path)
	case asideThere:
		_, err = os.Stat(path)
	case asideTextfile:
		err = textfile.Check(path)
	case asideToken:
		_, err = alert.ReadToken(path) // the token itself is for the watcher alone
	case asidePrepare:
		fault.Point("prepare")
		var p loader.Prepared
		if p, err = loader.Prepare(loader.Options{Env: strings.Split(string(q.Env), "\x00"), Name: q.Run, Owner: q.Holder}); err == nil {
			if p.Passed != nil {
				r.Passed, r.Distrust = p.Passed.Error(), p.Distrusted
			}
			r.Dir, r.Hook, r.Swept = []byte(p.Dir), []byte(p.Hook), p.Swept
		}
	case asideRemove:
		left := supervisor.Settings{Textfile: path}
		left.RemoveTextfile("/proc", q.Holder, os.LookupEnv)
	}
	if err != nil {
		r.Error = err.Error()
		errors.As(err, &r.Errno)
	}
	return r
}

// answerAside is what the process aside does.
func answerAside(p process) int {
	ask, err := hold.Asked()
	var q looking
	if err == nil {
		err = json.Unmarshal(ask, &q)
	}
	if err != nil {
		return fail(p, usagef(programName+" run -- COMMAND starts it where it is needed", "%s is not for use by hand: %v", asideCommand, err))
	}
	text, err := json.Marshal(q.look())
	if err == nil {
		err = hold.Answer(text)
	}
	if err != nil {
		return exitCannotRun
	}
	return exitOK
}

// answer waits for it, for so long at most. here says that the file system is known to be
// one that answers, and spares the process.
func (q *looking) answer(patience time.Duration, here bool) (reply, error) {
	if !here {
		ask, err := json.Marshal(q)
		if err != nil {
			return reply{}, err
		}
		text, err := hold.Aside([]string{"/proc/self/exe", asideCommand}, ask, patience)
		var r reply
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		var none syscall.Errno
		if !errors.As(err, &none) {
			return r, err
		}
		// There is no room for a process.
	}
	c := make(chan reply, 1)
	go func() { c <- q.look() }()
	select {
	case r := <-c:
		return r, nil
	case <-time.After(patience):
		return reply{}, fmt.Errorf("no answer from its file system within %v", patience)
	}
}

// text is answer for the text of a file.
func (q *looking) text(patience time.Duration, here bool) ([]byte, error) {
	r, err := q.answer(patience, here)
	if err != nil {
		return nil, err
	}
	return r.Text, r.err()
}

// ask is answer for what needs no more than to be told what failed.
func (q *looking) ask() error {
	_, err := q.text(preparePatience, false)
	return err
}

// unserved says that nothing on the way to any of these places can hang for want of a
// file server.
func unserved(paths ...string) bool {
	mounts, err := procfile.Read("/proc/self/mountinfo", procfile.Table)
	if err != nil {
		return false
	}
	for _, path := range paths {
		if !nodedir.Unserved(mounts, path) {
			return false
		}
	}
	return true
}
