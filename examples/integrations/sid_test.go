package integrations_test

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// plainUser is the user that Apptainer runs as here, without any privilege, as it does on
// most clusters: it makes a user namespace.
const plainUser = 65534

// inSid makes of a command one of Debian sid, which has Accelerate, with the place's PATH.
func (p *place) inSid(words ...string) []string {
	p.t.Helper()
	return debian.Need(p.t, debian.Sid).Argv("env", append([]string{p.path()}, words...)...)
}

// forApptainer takes the image, a folder with what Apptainer needs of /var/lib, then the
// command. An overlay without an upper directory is read-only.
const forApptainer = `
mount --bind "$1" ` + image + ` && mount -t overlay -o "lowerdir=$2:/var/lib" overlay /var/lib || exit 125
shift 2
exec "$@"
`

// asPlainUser makes a command of Debian sid run as plainUser, who then owns the place.
// The root of Debian 13 is at /mnt: an image of a container that any user can reach.
func (p *place) asPlainUser(words ...string) []string {
	p.t.Helper()
	varLib := p.t.TempDir()
	wardentest.NoError(p.t, os.MkdirAll(filepath.Join(varLib, "apptainer/mnt/session"), 0o755))
	wardentest.NoError(p.t, os.Chmod(filepath.Dir(p.dir), 0o755)) // which was made for its owner alone
	wardentest.NoError(p.t, filepath.WalkDir(p.dir, func(name string, _ fs.DirEntry, err error) error {
		return cmp.Or(err, os.Lchown(name, plainUser, plainUser))
	}))
	return debian.Need(p.t, debian.Sid).Argv("sh", slices.Concat(
		[]string{"-c", forApptainer, "sh", debian.Need(p.t, debian.Trixie).Path("/"), varLib, "env", p.path(),
			"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, words)...)
}
