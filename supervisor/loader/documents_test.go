package loader

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestWorksWith holds the README's row on PyTorch against what the stands have.
func TestWorksWith(t *testing.T) {
	var list []string
	for _, s := range stands {
		s.need(t)
		out, err := s.command(t, python, "-c", torchVersion+`
release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release"))
name = release.get("VERSION_ID", "sid")
print("%s (Debian %s, Python %d.%d)" % ((".".join(version.split(".")[:2]), name.strip('"')) + sys.version_info[:2]))
`).Output()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(string(out)))
	}
	rsstest.WorksWith(t, "PyTorch", list)
}
