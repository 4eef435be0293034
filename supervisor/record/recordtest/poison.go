package recordtest

import (
	"reflect"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Poison puts a text in front of every string of the values, one kind of string at a
// time, and calls do while it is there: a kind is the way to it by names of fields,
// "Meta.Command", "Events.Detail". At last all of them have it at once, and the kind is
// "". Every view of runs must cope with it: a record's owner chose its content.
// The values are pointers, or slices of them.
func Poison(text string, do func(kind string), values ...any) {
	all := map[string][]reflect.Value{}
	var walk func(v reflect.Value, kind string)
	walk = func(v reflect.Value, kind string) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem(), kind)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), kind)
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					walk(v.Field(i), strings.TrimPrefix(kind+"."+f.Name, "."))
				}
			}
		case reflect.String:
			if v.CanSet() {
				all[kind] = append(all[kind], v)
			}
		}
	}
	for _, v := range values {
		walk(reflect.ValueOf(v), "")
	}
	kinds := make([]string, 0, len(all))
	for kind := range all {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	var everything []reflect.Value
	for _, kind := range kinds {
		poisoned(text, all[kind], func() { do(kind) })
		everything = append(everything, all[kind]...)
	}
	poisoned(text, everything, func() { do("") })
}

// poisoned calls do while the strings have the text, and puts them back.
func poisoned(text string, strings []reflect.Value, do func()) {
	were := make([]string, len(strings))
	for i, v := range strings {
		were[i] = v.String()
		v.SetString(text + were[i])
	}
	do()
	for i, v := range strings {
		v.SetString(were[i])
	}
}

// Hostile is a text that an attacker might choose: it would clear a terminal,
// name its window, turn the direction of writing, end an element and an attribute of
// HTML, a line, and is no UTF-8.
const Hostile = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202e</script><img src=x onerror=alert(1)>\" onmouseover=\"alert(1)\n\r\x00\xff"

// Shows lists what of [Hostile] would still do harm in a text for a terminal: every
// character that is neither printable nor the end of a line.
func Shows(text string) (bad []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for _, c := range []string{"\x1b", "\x07", "\u009b", "\u202e", "\r", "\x00", "\xff"} {
			if strings.Contains(line, c) {
				bad = append(bad, line)
				break
			}
		}
	}
	return bad
}

// Runs are pointers to runs, for [Poison].
func Runs(runs []*record.Run) (all []any) {
	for _, r := range runs {
		all = append(all, r)
	}
	return all
}
