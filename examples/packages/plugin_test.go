package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPluginSource: what a site gets to build the plugin with is built as .rpm and .deb, and
// srun loads what was built and offers its option.
func TestPluginSource(t *testing.T) {
	if _, err := os.Stat("/usr/include/slurm/spank.h"); err != nil {
		t.Skip(err)
	}
	need(t, "srun")
	source := filepath.Join(needBuilt(t), "rsswarden-slurm-plugin-"+version)
	// Slurm need not be from a package, so neither may look for one.
	for name, script := range map[string]string{
		"rpmbuild": `
rpm -K "$1-1.src.rpm"
rpmbuild --rebuild --nodeps --define "_topdir $PWD/top" "$1-1.src.rpm"
rpm2archive top/RPMS/*/*.rpm && tar -xzf top/RPMS/*/*.tgz`,
		"rpmbuild -ta": `
rpmbuild -ta --nodeps --define "_topdir $PWD/top" "$1.tar.gz"
rpm2archive top/RPMS/*/*.rpm && tar -xzf top/RPMS/*/*.tgz`,
		"dpkg-buildpackage": `
tar -xzf "$1.tar.gz"
(cd rsswarden-slurm-plugin-* && dpkg-buildpackage -b -us -uc -d)
dpkg-deb -x rsswarden-slurm-plugin_*.deb .`,
	} {
		t.Run(name, func(t *testing.T) {
			need(t, strings.Fields(name)[0])
			dir := t.TempDir()
			cmd := exec.Command("bash", "-euc", script, "bash", source)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var built []string
			for _, place := range []string{"usr/lib64/slurm", "usr/lib/*/slurm-wlm"} {
				found, _ := filepath.Glob(filepath.Join(dir, place, "rsswarden_spank.so"))
				built = append(built, found...)
			}
			if len(built) != 1 {
				t.Fatalf("built: %q", built)
			}
			wardentest.Write(t, filepath.Join(dir, "plugstack.conf"), "required "+built[0]+" default=off\n")
			wardentest.Write(t, filepath.Join(dir, "slurm.conf"), "ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\nPlugStackConfig="+dir+"/plugstack.conf\n")
			srun := exec.Command("srun", "--help")
			srun.Env = append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf")
			if out, err := srun.CombinedOutput(); err != nil || !strings.Contains(string(out), "--rsswarden=on|off") {
				t.Errorf("srun --help: %v: %s", err, out)
			}
		})
	}
}
