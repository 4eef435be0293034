package integrations_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian13"
)

// nobody is the user in whose name Apptainer runs here, without any privilege, as it does
// on most clusters: it makes a user namespace.
const nobody = 65534

// inSid makes of a command one of the Debian 13 root that has Apptainer and Accelerate, with
// the place's PATH.
func (p *place) inSid(words ...string) []string {
	p.t.Helper()
	return debian13.NeedSid(p.t).Argv("env", append([]string{p.path()}, words...)...)
}

// asNobody is inSid by nobody, to whom the place then belongs.
func (p *place) asNobody(words ...string) []string {
	p.t.Helper()
	err := filepath.WalkDir(p.dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(name, nobody, nobody)
		}
		return err
	})
	for _, dir := range []string{filepath.Dir(p.dir), bin} { // which are made for their owner alone
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p.inSid(slices.Concat([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, words)...)
}
