package counts

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}
