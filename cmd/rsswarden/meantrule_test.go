package main

import "testing"

// TestMeantRule: a guess is a rule, and none is made of what may mean anything. What is
// told of the others stands in mistakesrules.txtar.
func TestMeantRule(t *testing.T) {
	for text, want := range map[string]string{
		"recycle:90%":           "did you mean '90%:recycle'?",
		"90%=trim":              "did you mean '90%:trim'?",
		"user 0.9:stop":         "did you mean 'user 90%:stop'?",
		"RSS >= 85%:Warn":       "did you mean '85%:warn'?",
		"free < 2G:recycle":     "did you mean 'free<2G:recycle'?",
		"90%:sigusr1":           "did you mean '90%:signal=USR1'?",
		"85%:trim, 95%:stop":    "give each rule an --at of its own: --at '85%:trim' --at '95%:stop'",
		"90%:exec=notify a,b:c": "did you mean '90%:exec=notify a,b:c'?", // it is one, and was not asked about
		"85%:explode":           "",
		"185%:warn":             "",
		"3G:stop":               "",
		"90%:signal=KILL":       "",
		"90%:":                  "",
		"90%":                   "",
		"recycle":               "",
		"::":                    "",
		",":                     "",
		"":                      "",
	} {
		if got := meantRule(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
