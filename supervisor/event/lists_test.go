package event

import (
	"math"
	"strings"
	"testing"
)

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
