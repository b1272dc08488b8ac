# SPDX-License-Identifier: BSD-3-Clause
# `cpack --config build/CPackConfig.cmake` writes a Debian package. LibTorch is not part of it; see packaging/README.md.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "Lockstep <lockstep@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training with LibTorch and MPI, for C, C++ and Fortran")
set(CPACK_PACKAGE_DESCRIPTION
    "The programs trainer and ckpt; the library liblockstep with its C header,
the source of its Fortran module and its pkg-config file; static libraries
and a CMake package for C++ programs.
.
LibTorch ${TORCH_VERSION} is not included. The programs look for it in
${TORCH_ROOT},
where /usr/share/lockstep/tools/setup puts it if LOCKSTEP_DEPS is the same as
in the build. For a LibTorch elsewhere, set LOCKSTEP_TORCH_DIR to its folder
when you compile programs, and add its folder lib to LD_LIBRARY_PATH when you
run them.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
# Packages of the shared libraries. dpkg-shlibdeps finds their names and versions on any distribution; libraries that
# belong to no package, which are those of LibTorch, are left out.
find_program(LOCKSTEP_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(LOCKSTEP_SHLIBDEPS)
if(LOCKSTEP_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TORCH_ROOT}/lib)
else() # those of Debian 12
  set(CPACK_DEBIAN_PACKAGE_DEPENDS
      "libc6, libstdc++6, libgcc-s1, libopenmpi3, libhdf5-103-1, libsz2, libboost-program-options1.74.0, \
libspdlog1.10, libfmt9, libjpeg62-turbo, libpng16-16, zlib1g")
endif()
# What programs need that link the library, and C++ programs with the static libraries.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, libopenmpi-dev, pkg-config")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "gfortran, cmake, libhdf5-dev, libboost-program-options-dev, libspdlog-dev, libfmt-dev, nlohmann-json3-dev, \
zlib1g-dev, libjpeg62-turbo-dev, libpng-dev, libwebp-dev, libdeflate-dev, liblz4-dev, libzstd-dev")
include(CPack)
