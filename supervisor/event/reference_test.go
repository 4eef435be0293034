package event

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
)

// TestReference: what docs/reference says of events and their fields is what the types
// and their comments say.
func TestReference(t *testing.T) {
	r := eventsReference{
		T: t, page: reference.New("Events", "What `--events FILE` appends, one JSON object a line, and what a record has. For what they are for see\n"+
			"[records](../records.md#events). A field that is marked \"if any\" is left out where it is zero or empty; fields are only ever added."),
		said: map[string]*reference.Comments{"event": reference.CommentsOf(t, "."), "rss": reference.CommentsOf(t, "../../rss")},
	}
	r.page.Section("Of every line")
	r.fields(reflect.TypeFor[Head]())
	for _, v := range r.said["event"].Values["Name"] {
		if Name(v.Value).New() == nil || Name(v.Value).Says() == "" {
			t.Errorf("nothing is known of %s", v.Name)
		}
	}
	for _, n := range Names() {
		r.page.Section(string(n))
		r.page.Text(n.Says())
		r.fields(reflect.TypeOf(n.New()).Elem())
	}
	for len(r.objects) > 0 {
		of := r.objects[0]
		r.objects = r.objects[1:]
		r.page.Section("Object: " + title(of))
		r.fields(of)
	}
	for _, of := range r.lists {
		r.page.Section("Values: " + title(of))
		var rows [][]string
		for _, v := range r.comments(of).Values[of.Name()] {
			says := v.Says
			switch v := reflect.ValueOf(v.Value).Convert(of).Interface().(type) {
			case LimitName:
				says = v.Says()
			case Action:
				says = v.Says()
			}
			if says == "" && of != reflect.TypeFor[Reason]() { // those are sentences
				t.Errorf("%s has no comment, which would say what the value %q means", v.Name, v.Value)
			}
			if v.Value != "" {
				rows = append(rows, []string{"`" + v.Value + "`", says})
			}
		}
		r.page.Table([]string{"value", "what it means"}, rows)
	}
	r.page.Check(t, "docs/reference/events.md")
}

type eventsReference struct {
	*testing.T
	page           *reference.Page
	said           map[string]*reference.Comments
	objects, lists []reflect.Type // in the order in which they were met
	met            map[reflect.Type]bool
}

// title is a type's name for people: "limit name".
func title(of reflect.Type) string {
	return strings.ToLower(strings.TrimSpace(regexp.MustCompile(`[A-Z][a-z]+`).ReplaceAllString(of.Name(), " $0")))
}

func link(kind string, of reflect.Type) string {
	return "[" + title(of) + "](#" + kind + "-" + strings.ReplaceAll(title(of), " ", "-") + ")"
}

func (r *eventsReference) comments(of reflect.Type) *reference.Comments {
	return r.said[of.PkgPath()[strings.LastIndex(of.PkgPath(), "/")+1:]]
}

// fields writes the table of an object's fields; the head's stand in a table of their own.
func (r *eventsReference) fields(of reflect.Type) {
	named := map[string]string{"nil": "null"}
	for _, list := range r.comments(of).Values {
		for _, v := range list {
			named[v.Name] = v.Value
		}
	}
	for f := range structFields(of) {
		named[f.Name] = tag(f)
	}
	var rows [][]string
	last := [2]string{} // what was said last, and of which field
	for f := range structFields(of) {
		if f.Anonymous {
			if f.Type != reflect.TypeFor[Head]() { // its fields stand beside the others
				r.page.Text("All of " + link("object", f.Type) + ".")
				r.meet(&r.objects, f.Type)
			}
			continue
		}
		says := r.comments(of).Fields[of.Name()+"."+f.Name]
		if says == "" {
			r.Errorf("%s.%s has no comment, which would say what the field %s means", of.Name(), f.Name, tag(f))
		}
		when := "always"
		switch {
		case strings.Contains(f.Tag.Get("json"), "omitempty"):
			when = "if any"
		case f.Type.Kind() == reflect.Pointer:
			when = "or null"
		}
		text := reference.Renamed(says, named)
		if text == last[0] {
			text = "see `" + last[1] + "`"
		} else {
			last = [2]string{text, tag(f)}
		}
		rows = append(rows, []string{"`" + tag(f) + "`", r.kind(f.Type, tag(f)), when, text})
	}
	if len(rows) > 0 {
		r.page.Table([]string{"field", "value", "", "what it means"}, rows)
	}
}

// structFields yields the fields that are written.
func structFields(of reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if f := of.Field(i); tag(f) != "-" && !yield(f) {
				return
			}
		}
	}
}

func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func (r *eventsReference) meet(list *[]reflect.Type, of reflect.Type) {
	if r.met == nil {
		r.met = map[reflect.Type]bool{}
	}
	if !r.met[of] {
		r.met[of] = true
		*list = append(*list, of)
	}
}

// kind is what a value is, with its unit, which the name of the field ends in.
func (r *eventsReference) kind(of reflect.Type, name string) string {
	switch of.Kind() {
	case reflect.Pointer:
		return r.kind(of.Elem(), name)
	case reflect.Slice:
		if of == reflect.TypeFor[json.RawMessage]() {
			return "object"
		}
		return "list: " + r.kind(of.Elem(), name)
	case reflect.Map:
		return "object: " + r.kind(of.Elem(), name) + " by " + r.kind(of.Key(), name)
	case reflect.Struct:
		if of.PkgPath() == "time" {
			return "text"
		}
		r.meet(&r.objects, of)
		return link("object", of)
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if of.PkgPath() == "" || len(r.comments(of).Values[of.Name()]) == 0 {
			return "text"
		}
		if of == reflect.TypeFor[Name]() {
			return "[name](#of-every-line)"
		}
		r.meet(&r.lists, of)
		return link("values", of)
	}
	switch {
	case strings.HasSuffix(name, "bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_s"):
		return "seconds"
	case strings.HasSuffix(name, "_ns"):
		return "nanoseconds"
	}
	return "number"
}

// TestElements: what takes memory is counted, and nothing that stands in a string.
func TestElements(t *testing.T) {
	for text, want := range map[string]int{
		"":                                     0,
		`{}`:                                   1,
		`{"a":1,"b":"x,y","c":null}`:           1,
		`{"a":[]}`:                             2,
		`{"a":[1,2,3]}`:                        4,
		`{"a":[{},{},{}]}`:                     7,
		`{"a":[{"b":1,"c":2},{}],"d":1}`:       5,
		`{"a":["[,,,","\",[,\\"],"b":"[{,"}`:   3,
		`{"a":"` + `\`:                         1,
		`]],,[`:                                0,
		strings.Repeat("[", 63):                63,
		strings.Repeat("[", 64):                math.MaxInt,
		strings.Repeat("[]", 100):              100,
		`{"a":` + strings.Repeat("[", 1000000): math.MaxInt,
	} {
		if got := Elements([]byte(text)); got != want {
			t.Errorf("%.40s: %d, want %d", text, got, want)
		}
	}
}
