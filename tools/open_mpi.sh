# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# Settings of Open MPI, which other MPI libraries ignore, and the difference between its mpirun and others. Sourced by
# common.sh.

# use_open_mpi_anywhere: lets Open MPI run as root, too, as containers and CI do.
use_open_mpi_anywhere() { export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; }

# keep_open_mpi_quiet: mpirun does not repeat why a program ended, which the program itself says.
keep_open_mpi_quiet() { export OMPI_MCA_orte_execute_quiet=1; }

# is_open_mpi MPIRUN: whether it is the launcher of Open MPI.
is_open_mpi() { "$1" --version 2>/dev/null | grep -E 'Open MPI|OpenRTE' >/dev/null; }

# stop_signal MPIRUN: the signal that makes the trainer save and stop, and that this launcher forwards. Open MPI's kills
# the ranks at INT and TERM, MPICH's ends itself at USR2.
stop_signal() {
  if is_open_mpi "$1"; then echo USR2; else echo TERM; fi
}
