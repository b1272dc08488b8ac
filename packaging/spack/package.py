# SPDX-License-Identifier: BSD-3-Clause
# A recipe for Spack 1.0 or newer. See packaging/README.md.
import os

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator


class Lockstep(CMakePackage):
    """Lockstep trains neural networks on many processes with LibTorch and MPI, as a program and as a library for C,
    C++ and Fortran programs. Without the variant pytorch, the environment variable LOCKSTEP_TORCH_DIR names the folder
    of a LibTorch >= 2.9 during the installation."""

    homepage = "https://example.org/lockstep"
    git = "https://example.org/lockstep.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("pytorch", default=False, description="Use LibTorch of py-torch instead of LOCKSTEP_TORCH_DIR")
    variant("webp", default=True, description="Read WebP images")
    variant("compression", default=True, description="Read chunks compressed by zstd and bitshuffle; faster deflate")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    depends_on("hdf5~mpi")
    depends_on("boost+program_options")
    depends_on("spdlog+fmt_external")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("xxhash")
    depends_on("zlib")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("libwebp", when="+webp")
    depends_on("libdeflate", when="+compression")
    depends_on("lz4", when="+compression")
    depends_on("zstd", when="+compression")
    depends_on("py-torch@2.9:", when="+pytorch")

    conflicts("%gcc@:11", msg="Lockstep needs C++20")

    def torch_dir(self):
        """The folder with include/ and lib/ of LibTorch."""
        if self.spec.satisfies("+pytorch"):
            libraries = find_libraries("libtorch_cpu", root=self.spec["py-torch"].prefix, shared=True, recursive=True)
            return os.path.dirname(libraries.directories[0])
        folder = os.environ.get("LOCKSTEP_TORCH_DIR", "")
        if not os.path.exists(os.path.join(folder, "lib", "libtorch_cpu.so")):
            raise InstallError(f"LOCKSTEP_TORCH_DIR={folder} is not the folder of a LibTorch; set it, or use +pytorch")
        return folder

    def cmake_args(self):
        return [
            self.define("LOCKSTEP_TESTS", False),
            self.define("LOCKSTEP_USE_NCCL", "off"),
            self.define("LOCKSTEP_TORCH_DIR", self.torch_dir()),
        ]

    def setup_run_environment(self, env):
        env.set("LOCKSTEP_ROOT", self.prefix)
