# SPDX-License-Identifier: BSD-3-Clause
# torch::cpu: the CPU half of a LibTorch (headers, libtorch_cpu, libc10), without the wheel's own CMake files, which
# demand a CUDA toolkit. LOCKSTEP_TORCH_DIR names a folder with include/ and lib/, else the one tools/setup unpacked.
if(LOCKSTEP_TORCH_DIR)
  set(TORCH_ROOT ${LOCKSTEP_TORCH_DIR})
elseif(DEFINED ENV{LOCKSTEP_DEPS})
  set(TORCH_ROOT $ENV{LOCKSTEP_DEPS}/torch-2.11.0/torch)
else()
  set(TORCH_ROOT $ENV{HOME}/.cache/lockstep/torch-2.11.0/torch)
endif()
if(NOT EXISTS ${TORCH_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no LibTorch in ${TORCH_ROOT}: run tools/setup, or set LOCKSTEP_TORCH_DIR")
endif()
find_library(TORCH_CPU_LIB torch_cpu PATHS ${TORCH_ROOT}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_library(TORCH_C10_LIB c10 PATHS ${TORCH_ROOT}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)

set(version_header ${TORCH_ROOT}/include/torch/headeronly/version.h)
if(NOT EXISTS ${version_header})
  set(version_header ${TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h) # before 2.10
endif()
file(STRINGS ${version_header} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
string(REGEX MATCHALL "[0-9]+" TORCH_VERSION "${version_lines}")
list(JOIN TORCH_VERSION "." TORCH_VERSION)
if(TORCH_VERSION VERSION_LESS 2.9)
  message(FATAL_ERROR "LibTorch ${TORCH_VERSION} in ${TORCH_ROOT} is too old: 2.9 or newer is needed")
endif()

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${TORCH_C10_LIB} IMPORTED_SONAME libc10.so)
add_library(torch::cpu SHARED IMPORTED)
# -idirafter: the wheel carries an fmt of its own, which -isystem would put before spdlog's.
set_target_properties(
  torch::cpu
  PROPERTIES IMPORTED_LOCATION ${TORCH_CPU_LIB}
             IMPORTED_SONAME libtorch_cpu.so
             INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1
             INTERFACE_COMPILE_OPTIONS
             "SHELL:-idirafter ${TORCH_ROOT}/include/torch/csrc/api/include;SHELL:-idirafter ${TORCH_ROOT}/include"
             INTERFACE_LINK_LIBRARIES torch::c10)
