package alert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestTargets: what is read of a receiver, how it is shown, and what is none.
func TestTargets(t *testing.T) {
	var b strings.Builder
	for _, text := range []string{
		"http://am:9093", " http://am:9093/ ", "https://h/prom/am/api/v2/alerts", "alertmanager+https://h/prom/",
		"https://hooks.example/services/T0/B0/xyzzy", "webhook+http://h", "webhook+http://h/", "http://me:s3cret@am:9093",
		"https://h/x?token=s3cret#frag", "https://h/x  token=s3cret", "http://am token-file=/x y", "https://[::1]:9/x",
		"", "am:9093", "am", "ftp://h/x", "http://", "http:///x", "alertmanager+", "webhook+am:9093", "http://h:port/", "http://a b/",
		"http://a token=", "http://a token=x y", "http://a token-file=x", "http://me:s3cret@a token=x", "slack+https://h/s3cret",
	} {
		got, err := ParseTarget(text)
		if err != nil {
			fmt.Fprintf(&b, "%q, shown as %s: it %v\n", text, Redact(text), err)
			continue
		}
		fmt.Fprintf(&b, "%q, shown as %s: %s %s, secret %v\n", text, Redact(text), got.Kind, got.URL, got.Secret())
	}
	golden.Check(t, "testdata/targets.txt", b.String())
}

// TestTokens: each receiver gets what it is to know us by, and no other's.
func TestTokens(t *testing.T) {
	for text, want := range map[string]struct {
		token, file string
		plain       bool
	}{
		"http://127.0.0.1:9093":             {"t0ken", "/f", false},
		"http://[::1]:9093":                 {"t0ken", "/f", false},
		"http://am:9093":                    {"t0ken", "/f", true},
		"https://am:9093":                   {"t0ken", "/f", false},
		"https://me:s3cret@am:9093":         {"", "", false},
		"https://am:9093 token=own":         {"own", "", false},
		"https://am:9093 token-file=/own":   {"", "/own", false},
		"https://hooks.example/x":           {"", "", false},
		"http://hooks.example/x token=own":  {"own", "", true},
		"webhook+http://localhost token=ow": {"ow", "", false},
	} {
		target, err := ParseTarget(text)
		wardentest.NoError(t, err)
		s := &Sender{opt: Options{Token: "t0ken", TokenFile: "/f"}}
		r := s.request(newReceiver(target), load{}, 0)
		if r.Token != want.token || r.TokenFile != want.file || target.Plain() != want.plain {
			t.Errorf("%s: %q, %q, in plain %v", text, r.Token, r.TokenFile, target.Plain())
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("alertmanager+https://u:p@h:1/x?y#z")
	f.Fuzz(func(t *testing.T, text string) {
		target, err := ParseTarget(text)
		if err != nil {
			return
		}
		text = string(target.Kind) + "+" + target.URL
		if target.Token != "" {
			text += " token=" + target.Token
		} else if target.TokenFile != "" {
			text += " token-file=" + target.TokenFile
		}
		again, err := ParseTarget(text)
		if err != nil || again != target {
			t.Errorf("%q is %+v, and that %+v, %v", text, target, again, err)
		}
	})
}
