// Package config reads options from a file in TOML: one `name = value` a line,
// named as the flags are, no tables.
//
// It knows what a file is and nothing of what the options mean: the caller says which keys
// there are and of what kind, and gets each value with its place, so that
// an error can be reported as FILE:LINE:COLUMN. Text is taken literally:
// nothing in a file is executed, expanded or included. Every problem of a file is reported,
// not only the first, and what is readable beside it is returned: a job must not be kept
// from running by a file that its user did not write.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Kind is the kind of a key's value.
type Kind int

const (
	// Text is a string, or a whole number for which its digits are taken.
	Text Kind = iota
	// Truth is true or false.
	Truth
	// List is a list of strings, or one string for a list of one.
	List
)

// Key is one option that a file may set.
type Key struct {
	Name string
	Kind Kind
}

// LockKey names the keys whose values only the file decides: lock = ["trim-private"].
const LockKey = "lock"

// Place is a place in a file, both from 1. Columns count bytes.
// The zero value means the file as a whole.
type Place struct {
	Line, Col int
}

// Value is what a file says of a key. Values has one element unless the key is
// a List; of a Truth that is "true" or "false".
type Value struct {
	Values []string
	Place
}

// File is what was read.
type File struct {
	Path   string
	Values map[string]Value
	// Lock holds the keys that the file locks, each one that exists; a locked
	// key need not be set.
	Lock map[string]bool
}

// Problem is something wrong with a file.
type Problem struct {
	Path string
	Place
	Says string // "unknown key \"limt\""
	Hint string // what to do about it: "did you mean limit?"
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.Path, p.Says)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.Path, p.Line, p.Col, p.Says)
}

// Problem makes a problem of a value that the caller could not use.
func (f *File) Problem(key, says, hint string) *Problem {
	return &Problem{Path: f.Path, Place: f.Values[key].Place, Says: says, Hint: hint}
}

// Parse reads the text of a file. path is for messages only. locks says
// whether the file may lock keys. The file returned holds all that could be
// used; problems come in the order of the file.
func Parse(path string, text []byte, keys []Key, locks bool) (f *File, problems []*Problem) {
	f = &File{Path: path, Values: map[string]Value{}, Lock: map[string]bool{}}
	defer func() {
		// A panic of the parser must not stop a user's job.
		if r := recover(); r != nil {
			problems = append(problems, &Problem{Path: path, Says: fmt.Sprintf("cannot be read: %v", r), Hint: "look for what is unusual in it"})
		}
	}()
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark, as editors elsewhere leave it
	found := map[string]any{}
	if err := toml.Unmarshal(text, &found); err != nil {
		return f, []*Problem{malformed(path, err)}
	}
	places := places(text)
	inOrder := func(a, b string) int { return cmp.Or(places[a].Line-places[b].Line, strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(found), inOrder) {
		problem := func(says, hint string) {
			problems = append(problems, &Problem{Path: path, Place: places[name], Says: says, Hint: hint})
		}
		if name == LockKey {
			if !locks {
				problem("only the site's own file may lock options", "leave this line out")
				continue
			}
			f.lock(found[name], keys, problem)
			continue
		}
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
		if i < 0 {
			problem(fmt.Sprintf("unknown key %q", name), unknown(name, found[name], keys))
			continue
		}
		values, hint := convert(found[name], keys[i])
		if hint != "" {
			problem(fmt.Sprintf("%s cannot be %s", name, sortOf(found[name])), hint)
			continue
		}
		f.Values[name] = Value{Values: values, Place: places[name]}
	}
	return f, problems
}

// lock takes in the list of keys to lock.
func (f *File) lock(v any, keys []Key, problem func(says, hint string)) {
	locked, hint := convert(v, Key{Name: LockKey, Kind: List})
	if hint != "" {
		problem(LockKey+" cannot be "+sortOf(v), `write a list of names, such as lock = ["trim-private"]`)
		return
	}
	for _, name := range locked {
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Name == name }) {
			f.Lock[name] = true
		} else {
			problem(fmt.Sprintf("unknown key %q in lock", name), unknown(name, nil, keys))
		}
	}
}

// convert returns a value as the strings that a flag would give, or a hint
// where it is of the wrong sort.
func convert(v any, k Key) (values []string, hint string) {
	switch v := v.(type) {
	case string:
		if k.Kind != Truth {
			return []string{v}, ""
		}
	case int64:
		if k.Kind == Text {
			return []string{strconv.FormatInt(v, 10)}, ""
		}
	case bool:
		if k.Kind == Truth {
			return []string{strconv.FormatBool(v)}, ""
		}
	case []any:
		if k.Kind != List {
			break
		}
		values = []string{}
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, "each element is a string in quotes, here is " + sortOf(e)
			}
			values = append(values, s)
		}
		return values, ""
	}
	switch k.Kind {
	case Truth:
		return nil, fmt.Sprintf("write %s = true or %s = false, without quotes", k.Name, k.Name)
	case List:
		return nil, fmt.Sprintf(`write a list of strings: %s = ["…", "…"]`, k.Name)
	default:
		return nil, fmt.Sprintf(`write it in quotes: %s = "…"`, k.Name)
	}
}

// sortOf names what TOML calls the sort of a value.
func sortOf(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	default:
		return "a date or time"
	}
}

// unknown says what a key was perhaps meant to be. The value may be a table
// whose name begins ours: [worker] with signal = "TERM".
func unknown(name string, value any, keys []Key) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	if near := text.Similar(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	if table, ok := value.(map[string]any); ok {
		for _, n := range names {
			if rest, ok := strings.CutPrefix(n, name+"-"); ok && table[rest] != nil {
				return "there are no tables; write " + n + " = …"
			}
		}
		return "there are no tables: every line is NAME = VALUE, with the name of an option"
	}
	return "keys are the names of the options without their dashes: " + strings.Join(names, ", ")
}

// malformed is what the parser says of text that is no TOML.
func malformed(path string, err error) *Problem {
	p := &Problem{Path: path, Says: err.Error(), Hint: `a line is NAME = VALUE: limit = "3G", quiet = true, at = ["85%:trim"]; text is in quotes`}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		p.Line, p.Col = bad.Position()
	}
	p.Says = strings.TrimPrefix(p.Says, "toml: ")
	return p
}

// places finds the places of the keys of the outermost level: a reader that
// knows none of them complains of each, with its place.
func places(text []byte) map[string]Place {
	found := map[string]Place{}
	var missing *toml.StrictMissingError
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&struct{}{}); errors.As(err, &missing) {
		for i := range missing.Errors {
			e := &missing.Errors[i]
			if key := e.Key(); len(key) > 0 {
				if _, again := found[key[0]]; !again {
					line, col := e.Position()
					found[key[0]] = Place{line, col}
				}
			}
		}
	}
	return found
}

// MaxSize bounds a file, in bytes.
const MaxSize = 64 << 10

// errTooLong keeps out of memory what is no configuration: a device, a log.
var errTooLong = fmt.Errorf("longer than %d KiB", MaxSize>>10)

// Read returns the text of a file that a user named. As [ReadTrusted] it waits for as long
// as the file's server does not answer. Errors do not repeat the path.
func Read(path string) ([]byte, error) { return read(path, false) }

// ReadTrusted is [Read] for a regular file that belongs to root and that only root can
// write.
func ReadTrusted(path string) ([]byte, error) { return read(path, true) }

// distrust says why a file is not obeyed, nil where it is.
func distrust(owner uint32, mode fs.FileMode) error {
	switch {
	case !mode.IsRegular():
		return errors.New("it is not a regular file")
	case owner != 0:
		return fmt.Errorf("it belongs to user %d, not to root", owner)
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("its mode %04o lets others than root write it", mode.Perm())
	}
	return nil
}

func read(path string, trusted bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	defer f.Close()
	if trusted {
		info, err := f.Stat()
		if err == nil {
			err = distrust(info.Sys().(*syscall.Stat_t).Uid, info.Mode())
		}
		if err != nil {
			return nil, nodedir.WithoutPath(err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = errTooLong
	}
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	return text, nil
}
