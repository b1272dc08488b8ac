# SPDX-License-Identifier: BSD-3-Clause
# lockstep_hdf5: HDF5's C library, the static one where it links by itself. Debian's shared one drags in curl and thirty
# libraries behind it, of which nothing is used and which cost every start of a program some 10 ms. Shared libraries are
# linked to the shared one, because Debian's static one is for programs only.
find_package(HDF5 REQUIRED COMPONENTS C)
include(CheckCSourceCompiles)
include(${CMAKE_CURRENT_LIST_DIR}/LinkEither.cmake)

get_filename_component(hdf5_folder "${HDF5_C_LIBRARY_hdf5}" DIRECTORY)
set(LOCKSTEP_HDF5_LIBRARIES "${hdf5_folder}/libhdf5.a" -lsz -lz -lm -ldl)
set(CMAKE_REQUIRED_INCLUDES ${HDF5_C_INCLUDE_DIRS})
set(CMAKE_REQUIRED_LIBRARIES ${LOCKSTEP_HDF5_LIBRARIES})
check_c_source_compiles("#include <hdf5.h>\nint main(void) { return H5open(); }" LOCKSTEP_HAS_STATIC_HDF5)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT LOCKSTEP_HAS_STATIC_HDF5)
  set(LOCKSTEP_HDF5_LIBRARIES ${HDF5_C_LIBRARIES})
endif()

add_library(lockstep_hdf5 INTERFACE IMPORTED)
target_include_directories(lockstep_hdf5 INTERFACE ${HDF5_C_INCLUDE_DIRS})
lockstep_link_either(lockstep_hdf5 "${LOCKSTEP_HDF5_LIBRARIES}" "${HDF5_C_LIBRARIES}")
# Programs that read HDF5 files of their own link this target, so that they have no second copy of the library.
add_library(lockstep::hdf5 ALIAS lockstep_hdf5)
