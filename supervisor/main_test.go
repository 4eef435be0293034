package supervisor

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
)

// exportRecord has this program read a record for a test.
const exportRecord = "export-record"

func TestMain(m *testing.M) {
	rsstest.BeEater()
	if len(os.Args) == 2 && os.Args[1] == action.RequeueCommand {
		if err := action.RequeueJob(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == exportRecord {
		if err := errors.Join(store.Confine(), store.Export(os.NewFile(3, "record"), os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
