package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// suggestRule is a hint for text that is no rule, empty if nothing is likely. A
// suggestion is always a rule.
func suggestRule(text string) string {
	if several := rulesJoined(text); len(several) > 1 {
		return "give each rule an --at of its own: --at '" + strings.Join(several, "' --at '") + "'"
	}
	when, what, ok := strings.Cut(text, ":")
	if !ok {
		when, what, _ = strings.Cut(text, "=") // 90%=stop
	}
	for _, halves := range [][2]string{{when, what}, {what, when}} {
		guess := suggestCond(halves[0]) + ":" + suggestAction(halves[1])
		if r, err := event.ParseRule(guess); err == nil {
			return fmt.Sprintf("did you mean '%s'?", r)
		}
	}
	return ""
}

// rulesJoined are the rules that commas join.
func rulesJoined(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		r, err := event.ParseRule(part)
		if err != nil {
			return nil
		}
		list = append(list, r.String())
	}
	return list
}

func suggestCond(text string) string {
	limit, cond := "", strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text)), "≥", ">")
	for _, l := range event.Limits {
		if rest, ok := strings.CutPrefix(cond, string(l)+" "); ok {
			limit, cond = string(l)+" ", rest
		}
	}
	cond = strings.ReplaceAll(cond, " ", "")
	for _, word := range []string{"memory", "mem", "used", "rss"} {
		cond = strings.TrimPrefix(cond, word)
	}
	cond = strings.TrimLeft(cond, ">=")
	if share, err := strconv.ParseFloat(cond, 64); err == nil {
		if share <= 1 {
			share *= 100 // a fraction: such a percentage makes no sense
		}
		cond = strconv.FormatFloat(math.Round(share*100)/100, 'f', -1, 64) + "%"
	}
	return limit + cond
}

// foreignActions is what others call our actions.
var foreignActions = map[string]string{
	"kill": "stop", "end": "stop", "abort": "stop", "terminate": "stop", "cancel": "stop",
	"checkpoint": "signal=USR2", "save": "signal=USR2", "restart": "recycle", "renew": "recycle",
	"log": "warn", "print": "warn", "notify": "warn", "alert": "warn", "drop": "trim", "resubmit": "requeue", "requeu": "requeue",
}

func suggestAction(line string) string {
	word := strings.ToLower(strings.TrimSpace(line))
	if like := foreignActions[word]; like != "" {
		return like
	}
	var names []string
	for _, a := range event.Actions {
		names = append(names, string(a))
	}
	if slices.Contains(names, word) { // stop is a signal's name too
		return word
	}
	if _, err := event.ParseSignal(word); err == nil {
		return "signal=" + word
	}
	if near := text.Similar(word, names); near != "" {
		return near
	}
	return strings.TrimSpace(line)
}
