#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# usage: check_mpi.sh
#
# In a container: compares the MPI of the container with the MPI of the host that started this process. If families or
# major versions differ, prints a sentence and ends with exit code 2. LOCKSTEP_HOST_MPI has the output of
# `mpirun --version` on the host; without it, the variables that mpirun sets are used. Without both, nothing is
# compared.
set -eu

# family: reads the output of `mpirun --version`, and prints family and major version, such as "Open MPI 4".
family() {
  sed -nE -e 's/.*\(Open(RTE| MPI)\) ([0-9]+)\..*/Open MPI \2/p' \
    -e 's/.*Intel\(R\) MPI Library.*Version ([0-9]+).*/Intel MPI \1/p' \
    -e 's/^ *Version: +([0-9]+)\..*/MPICH \1/p' | sed -n 1p
}

# launched_by: the same from the variables of this process. Those of MPICH do not have the version.
launched_by() {
  if [ -n "${OMPI_MCA_orte_ess_num_procs:-}" ]; then
    echo "Open MPI 4"
  elif [ -n "${OMPI_COMM_WORLD_SIZE:-}" ]; then
    echo "Open MPI 5"
  elif [ -n "${I_MPI_MPIRUN:-}${I_MPI_HYDRA_HOST_FILE:-}" ]; then
    echo "Intel MPI"
  elif [ -n "${HYDI_CONTROL_FD:-}" ]; then
    echo "MPICH"
  fi
}

inside=$(mpirun --version 2>/dev/null | family)
if [ -n "${LOCKSTEP_HOST_MPI:-}" ]; then
  outside=$(printf '%s\n' "$LOCKSTEP_HOST_MPI" | family)
  outside=${outside:-$(printf '%s\n' "$LOCKSTEP_HOST_MPI" | sed -n 1p)}
else
  outside=$(launched_by)
fi
case $outside in
  '' | "$inside") exit 0 ;;
  *[0-9]*) ;;
  *) [ "${inside% *}" != "$outside" ] || exit 0 ;;
esac
echo "lockstep: the container has ${inside:-no MPI}, but the host started it with $outside: load a module of the same" \
  "MPI and major version on the host, or build the image with the MPI of the host." >&2
exit 2
