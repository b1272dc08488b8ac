#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The recipes of packaging, as far as they can be checked without Apptainer, Spack and EasyBuild: the scripts inside the
# Apptainer definition, the comparison of MPI versions, and the Python of the recipes, with stand-ins for Spack. The
# recipes use the version of the project, and paths that are in the clone.
set -euo pipefail

cd "$LOCKSTEP_SOURCE_DIR"
version=$(sed -nE 's/^project\(lockstep VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "packaging.sh: $*" >&2
  exit 1
}

# --- Apptainer ---------------------------------------------------------------------------------------------------

# section NAME: the lines of a section of the definition.
section() { awk -v name="%$1" '/^%/ { inside = $1 == name; next } inside' packaging/lockstep.def; }

for name in post environment runscript test; do
  { echo '#!/bin/sh' && section "$name"; } >"$folder/$name"
  (($(wc -l <"$folder/$name") > 2)) || fail "lockstep.def has no section $name"
  bash --posix -n "$folder/$name" || fail "the section $name is no script"
  if command -v shellcheck >/dev/null; then shellcheck -s sh "$folder/$name" || fail "see above: section $name"; fi
done
grep -oE "\b(tools|packaging)/[a-z_./]+" "$folder/post" >"$folder/named"
while read -r file; do
  [[ -x $file ]] || fail "lockstep.def names $file, which is not in the clone"
done <"$folder/named"
[[ $(section labels) == *"Version $version"* ]] || fail "lockstep.def has another version than $version"

# check CODE TEXT VARIABLE...: compares the launcher of the variables with the MPI in $folder/mpirun.
check() {
  local code=0 output
  output=$(env -i PATH="$folder:/usr/bin:/bin" "${@:3}" packaging/check_mpi.sh 2>&1) || code=$?
  [[ $code == "$1" && $output == *"$2"* && $(wc -l <<<"$output") == 1 ]] || fail "${*:3}: $code, $output"
}

# inside LINE...: what `mpirun --version` prints in the container
inside() {
  printf '#!/bin/sh\ncat <<END\n%s\nEND\n' "$(printf '%s\n' "$@")" >"$folder/mpirun"
  chmod +x "$folder/mpirun"
}

ompi4="mpirun (Open MPI) 4.1.4" ompi5="mpirun (Open MPI) 5.0.3"
hydra=$'HYDRA build details:\n    Version:                                 4.0.2'
intel="Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 20221129 (id: 339ec755a1)"
inside "$ompi4" "" "Report bugs to http://www.open-mpi.org/community/help/"
check 0 ""
check 0 "" LOCKSTEP_HOST_MPI="$ompi4"
check 0 "" LOCKSTEP_HOST_MPI="mpirun (Open MPI) 4.0.1"
check 2 "the container has Open MPI 4, but the host started it with Open MPI 5" LOCKSTEP_HOST_MPI="$ompi5"
check 2 "but the host started it with MPICH 4" LOCKSTEP_HOST_MPI="$hydra"
check 2 "but the host started it with Intel MPI 2021" LOCKSTEP_HOST_MPI="$intel"
check 2 "but the host started it with mpirun: unknown" LOCKSTEP_HOST_MPI="mpirun: unknown"
check 0 "" OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_orte_ess_num_procs=2
check 2 "but the host started it with Open MPI 5" OMPI_COMM_WORLD_SIZE=2
check 2 "but the host started it with MPICH:" HYDI_CONTROL_FD=7
inside "$hydra"
check 0 "" HYDI_CONTROL_FD=7
check 0 "" LOCKSTEP_HOST_MPI="$hydra"
check 2 "the container has MPICH 4, but the host started it with Open MPI 4" LOCKSTEP_HOST_MPI="$ompi4"
inside
check 2 "the container has no MPI" LOCKSTEP_HOST_MPI="$ompi4"

# --- Spack and EasyBuild -----------------------------------------------------------------------------------------

command -v python3 >/dev/null || exit 0
mkdir -p "$folder/spack" "$folder/spack_repo/builtin/build_systems" "$folder/torch/lib"
cat >"$folder/spack/package.py" <<'END'
# Directives that write down their arguments.
lines = []
def directive(name):
    def record(*arguments, **options): lines.append((name, arguments, options))
    return record
for name in ("license", "version", "variant", "depends_on", "conflicts"): globals()[name] = directive(name)
class InstallError(Exception): pass
class Libraries:
    def __init__(self, folder): self.directories = [folder]
def find_libraries(name, root, shared, recursive): return Libraries(root + "/torch/lib")
END
cat >"$folder/spack_repo/builtin/build_systems/cmake.py" <<'END'
class CMakePackage:
    def define(self, name, value): return f"-D{name}={value}"
def generator(*names): pass
END
cat >"$folder/recipes.py" <<'END'
import os, re, runpy, sys
folder, version = sys.argv[1:]
sys.path.insert(0, folder)
recipe = runpy.run_path("packaging/spack/package.py")["Lockstep"]
import spack.package
needs = {arguments[0] for name, arguments, options in spack.package.lines if name == "depends_on"}
assert {"mpi", "hdf5~mpi", "boost+program_options", "spdlog+fmt_external", "xxhash", "zlib"} <= needs, needs
class Spec:
    def __init__(self, pytorch): self.pytorch = pytorch
    def satisfies(self, condition): return condition == "+pytorch" and self.pytorch
    def __getitem__(self, name): return type("Package", (), {"prefix": f"/spack/{name}"})
package = recipe()
package.spec = Spec(True)
assert "-DLOCKSTEP_TORCH_DIR=/spack/py-torch/torch" in package.cmake_args(), package.cmake_args()
package.spec = Spec(False)
os.environ["LOCKSTEP_TORCH_DIR"] = folder + "/torch"
try: assert not package.cmake_args()
except spack.package.InstallError as error: assert "is not the folder of a LibTorch" in str(error)
open(folder + "/torch/lib/libtorch_cpu.so", "w").close()
arguments = package.cmake_args()
assert f"-DLOCKSTEP_TORCH_DIR={folder}/torch" in arguments, arguments
# CMake would ignore a setting with another name.
known = "".join(open(name).read() for name in ("CMakeLists.txt", "Makefile.inc"))
for name in re.findall(r"-D(\w+)=", " ".join(arguments)): assert re.search(rf"\b{name}\b", known), name

easyconfig = runpy.run_path(f"packaging/easybuild/Lockstep-{version}-foss-2023a.eb",
                            {"SHLIB_EXT": "so", "SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz"})
assert easyconfig["version"] == version
for name in re.findall(r"-D(\w+)=", easyconfig["configopts"]): assert re.search(rf"\b{name}\b", known), name
END
PYTHONDONTWRITEBYTECODE=1 python3 "$folder/recipes.py" "$folder" "$version"
