package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// wordsCommand is what the scripts of completion ask: the words behind the program's
// name up to the cursor, of which the last is being typed. It prints a word to choose a
// line, with a tab and what it is, and a line that begins with a colon for what the
// shell knows better: ":files", ":dirs", ":command N" where the user's own command
// begins with word N, from 0. Not for users.
const wordsCommand = "completion-words"

// wordsPatience is how long a key press may take: a file system or Slurm may be asleep.
const wordsPatience = time.Second

// word is one to choose.
type word struct{ text, says string }

// offer is what there is to choose.
type offer struct {
	words []word
	kind  string // files, dirs, command N; empty for none
}

func printWords(p process) int {
	args := p.args[2:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return fail(p, usagef("rsswarden completion bash", "%s is not for use by hand", wordsCommand))
	}
	found := make(chan offer, 1)
	go func() { found <- offers(p, args) }()
	select {
	case o := <-found:
		for _, w := range o.words {
			text := w.text
			if w.says != "" {
				text += "\t" + oneLine(w.says)
			}
			if strings.HasPrefix(w.text, args[len(args)-1]) && oneLine(w.text) == w.text {
				fmt.Fprintln(p.stdout, text)
			}
		}
		if o.kind != "" {
			fmt.Fprintln(p.stdout, ":"+o.kind)
		}
	case <-time.After(wordsPatience):
	}
	return exitOK
}

// offers is what fits the last of the words.
func offers(p process, args []string) offer {
	last := args[len(args)-1]
	all := commands(p, new(int))
	if len(args) == 1 {
		var o offer
		for _, c := range all {
			o.words = append(o.words, word{c.Name, c.Usage})
		}
		if strings.HasPrefix(last, "-") {
			o.words = []word{{"--help", "print this help"}, {"--version", "print the version"}}
		}
		return o
	}
	i := slices.IndexFunc(all, func(c *cli.Command) bool { return c.Name == args[0] })
	if i < 0 {
		return offer{}
	}
	l := lineRead(all[i], args[1:])
	switch {
	case l.own >= 0:
		return offer{kind: fmt.Sprintf("command %d", l.own+1)}
	case l.option != nil:
		return valuesOf(p, l.option, last)
	case strings.HasPrefix(last, "-") && !l.ended:
		if name, value, has := strings.Cut(last, "="); has {
			f := valued(flagNamed(all[i].Flags, strings.TrimLeft(name, "-")))
			if f == nil {
				return offer{}
			}
			o := valuesOf(p, f, value)
			for i := range o.words {
				o.words[i].text = name + "=" + o.words[i].text
			}
			return o
		}
		return offer{words: optionWords(all[i], args[1:len(args)-1])}
	}
	return arguments(p, all[i].Name, l.args, last)
}

// lineState says where in its line a command is.
type lineState struct {
	own    int      // the word at which a command of the user's begins, else -1
	option cli.Flag // what the last word is the value of
	ended  bool     // there are no more options
	args   []string // in front of the last word
}

func lineRead(c *cli.Command, words []string) lineState {
	s := lineState{own: -1}
	for i, w := range words {
		last := i == len(words)-1
		switch {
		case s.option != nil && last:
			return s
		case s.option != nil:
			s.option = nil
		case w == "--" && !s.ended && !last:
			s.ended = true
		case strings.HasPrefix(w, "-") && w != "-" && !s.ended:
			if !last && !strings.Contains(w, "=") {
				s.option = valued(flagNamed(c.Flags, strings.TrimLeft(w, "-")))
			}
		case c.Name == "run":
			s.own = i
			return s
		case !last:
			s.args = append(s.args, w)
		}
	}
	return s
}

// valued is the flag where it takes a value.
func valued(f cli.Flag) cli.Flag {
	if doc, ok := f.(cli.DocGenerationFlag); ok && doc.TakesValue() {
		return f
	}
	return nil
}
