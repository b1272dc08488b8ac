# SPDX-License-Identifier: BSD-3-Clause
# LOCKSTEP_MPIRUN and LOCKSTEP_MPIRUN_FLAGS: where Makefile.inc says auto, the launcher of the MPI that was found, and
# the flags with which it starts more ranks than there are processors.
if(LOCKSTEP_MPIRUN STREQUAL "auto")
  string(REPLACE mpiexec mpirun LOCKSTEP_MPIRUN ${MPIEXEC_EXECUTABLE})
  if(NOT EXISTS ${LOCKSTEP_MPIRUN})
    set(LOCKSTEP_MPIRUN ${MPIEXEC_EXECUTABLE})
  endif()
endif()
if(LOCKSTEP_MPIRUN_FLAGS STREQUAL "auto")
  execute_process(COMMAND ${LOCKSTEP_MPIRUN} --version OUTPUT_VARIABLE launcher_version ERROR_QUIET)
  if(launcher_version MATCHES "Open MPI|OpenRTE")
    set(LOCKSTEP_MPIRUN_FLAGS "--oversubscribe --bind-to none")
  else()
    set(LOCKSTEP_MPIRUN_FLAGS "")
  endif()
endif()
