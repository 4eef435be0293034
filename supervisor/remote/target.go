// Package remote asks the watchers that lead a node, for their status or to act: those of
// this node by their sockets, those of a job's other nodes by one step of Slurm's, in
// which this same program answers for its node.
package remote

import (
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const program = "rsswarden"

// Caller is the process that asks.
type Caller struct {
	Lookup  func(string) (string, bool)
	Environ []string
	Warn    func(text string)
}

func (c *Caller) get(name string) string {
	v, _ := c.Lookup(name)
	return strings.TrimSpace(v)
}

// Target says which leaders are asked.
type Target struct {
	Job, Node string
	All       bool // those of this user on this node, whatever job the caller is in
}

// Request is what leaders are asked for: their status, or to act.
type Request struct {
	Do     event.Action // empty for the status
	PIDs   []int
	Ranks  []int
	Signal string
	Every  time.Duration // how often other nodes repeat their status; 0: they give it once
}

// arguments is the command line by which this program asks the same on another node.
func (q Request) arguments() []string {
	args := []string{"status"}
	if q.Do != "" {
		args[0] = q.Do.Row().Command
	}
	for _, pid := range q.PIDs {
		args = append(args, "--pid", strconv.Itoa(pid))
	}
	for _, r := range q.Ranks {
		args = append(args, "--rank", strconv.Itoa(r))
	}
	if q.Signal != "" {
		args = append(args, "--signal", q.Signal)
	}
	if q.Every > 0 {
		args = append(args, "--every", q.Every.String())
	}
	return args
}

// Error is about leaders that are not there, or that do not act.
type Error struct {
	Msg, Hint string
	Usage     bool // the request itself is wrong
}

func (e *Error) Error() string { return e.Msg }

// jobHere is the job whose leaders on this node are asked, empty for all.
func (t Target) jobHere(c Caller) string {
	if t.Job == "" && !t.All {
		return c.get("SLURM_JOB_ID")
	}
	return t.Job
}

// Answer is one message of a leader, or an error in its place. Nodes send it as a JSON
// object; a node may have several leaders.
type Answer struct {
	Node string `json:"node"`
	Job  string `json:"job,omitempty"`
	// Begun is in the first answer of a node, and Over in its last.
	Begun bool `json:"begun,omitempty"`
	Over  bool `json:"over,omitempty"`

	Status *control.Status `json:"status,omitempty"`
	Result *control.Result `json:"result,omitempty"`
	// Leader is the PID of a node's leader, and Ranks those asked for that it has.
	Leader int   `json:"leader,omitempty"`
	Ranks  []int `json:"ranks,omitempty"`
	// Error is why a leader has not answered or acted.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

func (a Answer) asError() error { return &Error{Msg: a.Node + ": " + a.Error, Hint: a.Hint} }
