package supervisor

import (
	"fmt"
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	if len(os.Args) == 2 && os.Args[1] == action.RequeueCommand {
		if err := action.RequeueJob(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
