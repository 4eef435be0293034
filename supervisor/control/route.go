package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// commanded is the action that the last element of a path asks for.
func commanded(name string) (event.Action, bool) {
	for _, a := range event.Actions {
		if name != "" && a.Row().Command == name {
			return a, true
		}
	}
	return "", false
}

func pathsHint() string {
	hint := "there are GET /v1/status, GET /v1/events, and POST "
	for _, a := range event.Actions {
		if name := a.Row().Command; name != "" {
			hint += "/v1/" + name + ", "
		}
	}
	return strings.TrimSuffix(hint, ", ")
}

// asked is what a request comes to: status, events, or a command.
type asked struct {
	status, events bool
	command        Command
}

// route finds out what is asked for.
func route(q request) (asked, *problem) {
	version, name, _ := strings.Cut(strings.TrimPrefix(q.path, "/"), "/")
	if number, ok := strings.CutPrefix(version, "v"); ok && version != "v1" && number != "" && strings.Trim(number, "0123456789") == "" {
		return asked{}, &problem{status: 404, text: "version " + version + " is not spoken here", hint: "the only version is v1"}
	}
	a := asked{status: name == "status", events: name == "events"}
	does, isCommand := commanded(name)
	if version != "v1" || !a.status && !a.events && !isCommand {
		return a, &problem{status: 404, text: "there is no such path", hint: pathsHint()}
	}
	want := "GET"
	if isCommand {
		want = "POST"
	}
	if q.method != want {
		return a, &problem{status: 405, text: fmt.Sprintf("/v1/%s is asked for by %s", name, want), allow: want}
	}
	if !isCommand {
		if len(q.body) > 0 {
			return a, malformed("a GET has no body here")
		}
		return a, nil
	}
	var p *problem
	a.command, p = parseCommand(q.body)
	if p == nil && a.command.Signal != "" && name != "checkpoint" {
		p = &problem{status: 400, text: `"signal" goes with /v1/checkpoint alone`}
	}
	a.command.Do = does
	return a, p
}

const bodyHint = `a body is empty for everybody who can, or like {"pids":[4711]} or {"ranks":[0]}`

// parseCommand reads the body of a command. Whatever could be meant to narrow it
// down and does not is an error: it would be done to everybody.
func parseCommand(b []byte) (Command, *problem) {
	var c Command
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return c, nil
	}
	bad := func(format string, args ...any) (Command, *problem) {
		return Command{}, &problem{status: 400, text: fmt.Sprintf(format, args...), hint: bodyHint}
	}
	if b[0] != '{' {
		return bad("the body is no JSON object")
	}
	var body struct {
		PIDs   numbers `json:"pids"`
		Ranks  numbers `json:"ranks"`
		Signal string  `json:"signal"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return bad("unknown field %s", name)
		}
		return bad("the body is not what is expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("there is something behind the JSON object")
	}
	if slices.Contains(body.PIDs, 0) {
		return bad(`"pids" are numbers above 0`)
	}
	c = Command{PIDs: body.PIDs, Ranks: body.Ranks, Signal: body.Signal}
	return c, nil
}

// numbers are PIDs or ranks. A list that is there names somebody.
type numbers []int

func (n *numbers) UnmarshalJSON(b []byte) error {
	var list []int
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("an empty list names nobody; leave it out for everybody")
	}
	if slices.Min(list) < 0 {
		return errors.New("a number below 0")
	}
	*n = list
	return nil
}
