package alert

import (
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestTargets(t *testing.T) {
	for text, want := range map[string]struct {
		kind       Kind
		url, shown string
		secret     bool
	}{
		"http://am:9093":                             {Alertmanager, "http://am:9093/api/v2/alerts", "alertmanager+http://am:9093", false},
		" http://am:9093/ ":                          {Alertmanager, "http://am:9093/api/v2/alerts", "alertmanager+http://am:9093", false},
		"https://h/prom/am/api/v2/alerts":            {Alertmanager, "https://h/prom/am/api/v2/alerts", "alertmanager+https://h/prom/am", false},
		"alertmanager+https://h/prom/":               {Alertmanager, "https://h/prom/api/v2/alerts", "alertmanager+https://h/prom", false},
		"https://hooks.example/services/T0/B0/xyzzy": {Webhook, "https://hooks.example/services/T0/B0/xyzzy", "webhook+https://hooks.example/…", false},
		"webhook+http://h":                           {Webhook, "http://h", "webhook+http://h", false},
		"webhook+http://h/":                          {Webhook, "http://h/", "webhook+http://h", false},
		"http://me:s3cret@am:9093":                   {Alertmanager, "http://me:s3cret@am:9093/api/v2/alerts", "alertmanager+http://am:9093", true},
		"https://h/x?token=s3cret#frag":              {Webhook, "https://h/x?token=s3cret", "webhook+https://h/…", true},
		"https://h/x  token=s3cret":                  {Webhook, "https://h/x", "webhook+https://h/…", true},
		"http://am token-file=/x y":                  {Alertmanager, "http://am/api/v2/alerts", "alertmanager+http://am", false},
		"https://[::1]:9/x":                          {Webhook, "https://[::1]:9/x", "webhook+https://[::1]:9/…", false},
	} {
		got, err := ParseTarget(text)
		if err != nil || got.Kind != want.kind || got.URL != want.url || got.String() != want.shown || got.Secret() != want.secret {
			t.Errorf("%q: %+v, shown as %v, secret %v, %v", text, got, got, got.Secret(), err)
		}
		if Redact(text) != want.shown {
			t.Errorf("%q is shown as %q", text, Redact(text))
		}
	}
	for _, text := range []string{"", "am:9093", "am", "ftp://h/x", "http://", "http:///x", "alertmanager+", "webhook+am:9093", "http://h:port/", "http://a b/", "http://a token=", "http://a token=x y", "http://a token-file=x", "http://me:s3cret@a token=x", "slack+https://h/s3cret"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
		if shown := Redact(text); shown != "(not a URL)" {
			t.Errorf("%q is shown as %q", text, shown)
		}
	}
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
