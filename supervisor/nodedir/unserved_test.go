package nodedir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnserved: a way that crosses a mount of a file server, or of a file system in user
// space, by its name or by a link, is told from one that does not.
func TestUnserved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"disk/deep", "home/user", "with space"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": dir + "/home/user", "disk/up": "../home", "disk/round": "round"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	info := "22 1 0:21 / / rw - nfs4 server:/root rw\n" +
		"23 22 8:1 / " + dir + "/disk rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
		"24 22 0:40 / " + dir + "/home rw master:3 - fuse.sshfs host: rw\n" +
		"25 22 0:41 / " + dir + `/with\040space rw - lustre mgs:/fs rw` + "\n"
	for path, want := range map[string]bool{
		dir: true, dir + "/disk": true, dir + "/disk/deep/not/there": true, dir + "/other": true, dir + "/homeless": true,
		dir + "/home": false, dir + "/home/user/.cache": false, dir + "/link/.cache": false, dir + "/disk/up/user": false,
		dir + "/with space/a": false, dir + "/disk/round": false, "relative": false,
	} {
		if got := Unserved([]byte(info), path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	for _, broken := range []string{"", "22 1 0:21 / / rw ext4\n"} {
		if Unserved([]byte(broken), dir) {
			t.Errorf("%q says that nothing is served", broken)
		}
	}
}
