// Package doctor examines what works on this node and in this job: each check tries
// something, and says what was found, where, and what to do. The judgement of a check is
// a function over the facts that its probe has read.
package doctor

import "github.com/rsswarden/rsswarden/supervisor/phrase"

// Examine makes all checks, in the order in which they are printed.
func Examine(s Setup) Report {
	d := &prober{Setup: s}
	go d.obey()
	var all []Check
	for _, checks := range []func(*prober) []Check{
		(*prober).program, (*prober).trial, (*prober).limits, (*prober).ptrace, (*prober).loaders, (*prober).records, (*prober).kernel,
		(*prober).numbers, (*prober).alerts,
	} {
		all = append(all, checks(d)...)
	}
	r := Conclude(all)
	r.Works = phrase.WhatWorks(d.found, d.Rules, d.unable)
	return r
}
