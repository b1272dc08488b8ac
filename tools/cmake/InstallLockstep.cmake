# SPDX-License-Identifier: BSD-3-Clause
# `cmake --install build --prefix P`, and the package Lockstep, there and in the build tree (Lockstep_DIR=build).
include(CMakePackageConfigHelpers)

# All that programs like the trainer and ckpt need.
add_library(lockstep INTERFACE)
target_link_libraries(lockstep INTERFACE lockstep_trainer lockstep_embed lockstep_ckpt)
add_library(lockstep::lockstep ALIAS lockstep)
target_compile_features(lockstep INTERFACE cxx_std_20)
if(LOCKSTEP_HAS_GPU_MODULE) # which the program loads
  target_link_options(lockstep INTERFACE $<BUILD_INTERFACE:-Wl,-rpath,${PROJECT_BINARY_DIR}>
                      $<INSTALL_INTERFACE:-Wl,-rpath,$<INSTALL_PREFIX>/lib>)
  set_target_properties(lockstep_gpu PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS lockstep_gpu LIBRARY DESTINATION lib)
endif()

get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
list(TRANSFORM modules PREPEND lockstep_ OUTPUT_VARIABLE libraries)
install(TARGETS lockstep lockstep_flags ${libraries} EXPORT LockstepTargets ARCHIVE DESTINATION lib)
install(TARGETS lockstep_c lockstep_fortran EXPORT LockstepTargets LIBRARY DESTINATION lib)
install(FILES src/embed/lockstep.F90 DESTINATION share/lockstep)
install(FILES ${PROJECT_BINARY_DIR}/install/lockstep.pc DESTINATION lib/pkgconfig)
set_target_properties(trainer PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${TORCH_ROOT}/lib")
install(TARGETS trainer ckpt RUNTIME DESTINATION bin)
install(DIRECTORY include/lockstep DESTINATION include FILES_MATCHING PATTERN *.h PATTERN *.hpp)
install(DIRECTORY tools/configs DESTINATION share/lockstep)
install(PROGRAMS tools/setup DESTINATION share/lockstep/tools) # puts LibTorch into place
install(FILES tools/common.sh tools/open_mpi.sh DESTINATION share/lockstep/tools)
install(FILES LICENSE DESTINATION share/doc/lockstep RENAME copyright)

set(package lib/cmake/Lockstep)
set(modules_of_package tools/cmake/Compression.cmake tools/cmake/Dependencies.cmake tools/cmake/Hdf5.cmake
                       tools/cmake/Jpeg.cmake tools/cmake/LinkEither.cmake tools/cmake/Png.cmake
                       tools/cmake/Torch.cmake)
install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${package})
export(EXPORT LockstepTargets NAMESPACE lockstep:: FILE ${PROJECT_BINARY_DIR}/LockstepTargets.cmake)
set(package_modules ${PROJECT_SOURCE_DIR}/tools/cmake)
configure_file(tools/cmake/LockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/LockstepConfig.cmake @ONLY)
set(package_modules \${CMAKE_CURRENT_LIST_DIR})
configure_file(tools/cmake/LockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/install/LockstepConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The manual pages, from the help of the programs.
install(CODE "set(programs \"${PROJECT_BINARY_DIR}\")
              set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1\")
              execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/tools/docs\" --man \"\${folder}\" \"\${programs}\"
                              COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${PROJECT_BINARY_DIR}/install/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
              ${modules_of_package} DESTINATION ${package})

# Module files, which state the prefix of the installation. In the folders of the system nothing needs a module.
set(modulefiles share/lockstep/modulefiles/lockstep)
install(CODE "if(NOT CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?\$\")
                get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
                set(version ${PROJECT_VERSION})
                set(configured \"${PROJECT_BINARY_DIR}/install/modulefiles\")
                foreach(kind tcl lua)
                  set(file \"\${configured}/\${version}.\${kind}\")
                  string(REPLACE .tcl \"\" file \"\${file}\")
                  configure_file(\"${PROJECT_SOURCE_DIR}/packaging/modulefile.\${kind}.in\" \"\${file}\" @ONLY)
                  file(INSTALL DESTINATION \"\${prefix}/${modulefiles}\" TYPE FILE FILES \"\${file}\")
                endforeach()
              endif()"
        COMPONENT modulefiles)

# Makefile.inc, which there finds lockstep.mk beside it.
file(READ Makefile.inc makefile_inc)
string(REPLACE "build/lockstep.mk" "lockstep.mk" makefile_inc "${makefile_inc}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/install/Makefile.inc CONTENT "${makefile_inc}" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/Makefile.inc ${PROJECT_BINARY_DIR}/install/lockstep.mk
        DESTINATION share/lockstep)
