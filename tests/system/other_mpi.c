/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for the MPI library of a program that was built with another one than Lockstep. */
#include <string.h>

int MPI_Get_library_version(char* version, int* length) {
  strcpy(version, "Imaginary MPI 7.1, built today");
  *length = (int)strlen(version);
  return 0;
}
