# SPDX-License-Identifier: BSD-3-Clause
# What the libraries link: found alike where Lockstep is built and, by the package, where it is used.
get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT C IN_LIST languages)
  enable_language(C) # without it neither MPI's nor HDF5's C library is found
endif()
find_package(Threads REQUIRED)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI REQUIRED COMPONENTS C)
# MPI_CXX_SKIP_MPICXX covers CMake's own checks only: here for everyone who includes mpi.h, the C interface alone.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
include(${CMAKE_CURRENT_LIST_DIR}/Hdf5.cmake) # lockstep_hdf5
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED) # the spdlog of some distributions has one of its own
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/Compression.cmake) # lockstep_compression
include(${CMAKE_CURRENT_LIST_DIR}/Png.cmake) # lockstep_png
include(${CMAKE_CURRENT_LIST_DIR}/Jpeg.cmake) # lockstep_jpeg, lockstep_webp
include(${CMAKE_CURRENT_LIST_DIR}/Torch.cmake) # torch::cpu, from LOCKSTEP_TORCH_DIR or the shared cache
