package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// useWheel installs the wheel $1 by pip into a new virtual environment, uses it as $2 says, and
// removes it.
const useWheel = `
python3=$1
"$python3" -m venv venv
ls venv/bin >before
export PATH=$PWD/venv/bin:$PATH
pip install --quiet --no-index --disable-pip-version-check "$2"
[ "$(command -v rsswarden)" = "$PWD/venv/bin/rsswarden" ]
[ "$(rsswarden --version | head -1)" = "rsswarden 1.2.3" ]
[ "$(rsswardend --version | head -1)" = "rsswardend 1.2.3" ]
[ "$(python -c 'import rsswarden; print(rsswarden.__version__, rsswarden.program())')" = "1.2.3 $PWD/venv/bin/rsswarden" ]
# How they end, and that Python's ignored signals are not handed on.
for program in rsswarden 'python -m rsswarden'; do
	status=0
	$program run --quiet --limit 300M -- sh -c 'grep SigIgn /proc/self/status; kill -TERM $$' >out || status=$?
	[ "$status" = 143 ]
	diff out <(grep SigIgn /proc/self/status)
done
# The hook is in the Python of the environment.
rsswarden run --quiet --limit 300M -- python -c 'import sys; print([f for f in sys.meta_path if "_arm" in repr(f)])' | grep Finder
# As the SPANK plugin starts it before Slurm 23.11.
[ "$(RSSWARDEN_ARGV0=sh venv/bin/rsswarden-task -c 'echo "$0 $1 ${RSSWARDEN_DIR:+watched}"' name word)" = 'name word watched' ]
pip uninstall --quiet --yes --disable-pip-version-check rsswarden
ls venv/bin | diff before -
[ ! -e venv/lib/python3*/site-packages/rsswarden ]
`

// TestWheel: pip installs it without a network, it works as any program of a virtual
// environment, and nothing of it stays.
func TestWheel(t *testing.T) {
	if err := exec.Command(wardentest.Python, "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skipf("%s makes no virtual environments: %v", wardentest.Python, err)
	}
	wheel := filepath.Join(needBuilt(t), "rsswarden-"+version+"-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", useWheel, "bash", wardentest.Python, wheel)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_STATE_HOME="+cmd.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
