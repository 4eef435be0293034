# A recipe for Spack: put it into packages/rsswarden/ of a repository of yours
# (spack repo create, spack repo add), then spack install rsswarden.
from spack.package import *


class Rsswarden(MakefilePackage):
    """Runs a training job inside its memory limit: watches its process tree against
    every limit that can end it, warns early, and has PyTorch loader workers give
    memory back."""

    homepage = "https://github.com/rsswarden/rsswarden"
    git = "https://github.com/rsswarden/rsswarden.git"

    license("Apache-2.0")

    version("main", branch="main")

    depends_on("c", type="build")  # LMDB is in it
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")

    conflicts("platform=darwin", msg="needs Linux: /proc and cgroups")
    conflicts("platform=windows", msg="needs Linux: /proc and cgroups")

    def setup_build_environment(self, env):
        # Go's own cache would be in the home directory.
        env.set("GOCACHE", join_path(self.stage.path, "go-cache"))
        env.set("GOMODCACHE", join_path(self.stage.path, "go-modules"))
        env.set("GOFLAGS", "-modcacherw")

    @property
    def build_targets(self):
        return ["build", f"VERSION={self.version}"]

    @property
    def install_targets(self):
        return ["install", f"VERSION={self.version}", f"PREFIX={self.prefix}"]
