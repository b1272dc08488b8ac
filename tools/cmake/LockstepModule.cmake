# SPDX-License-Identifier: BSD-3-Clause
add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:include>)
# Headers that modules share are named by their module, "parallel/store/write_guard.hpp". Only quotes find them.
set(quoted_folders -iquote${PROJECT_SOURCE_DIR} -iquote${PROJECT_SOURCE_DIR}/src)
target_compile_options(lockstep_flags INTERFACE "$<BUILD_INTERFACE:${quoted_folders}>")
# Warnings are for targets of this project, not for those of a user's. With Debian 12's compiler they are errors,
# but not with sanitizers, whose checks mislead some warnings.
define_property(TARGET PROPERTY LOCKSTEP_WARNS INITIALIZE_FROM_VARIABLE LOCKSTEP_WARNS)
set(LOCKSTEP_WARNS ON)
set(lockstep_warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 AND NOT LOCKSTEP_SANITIZE)
  list(APPEND lockstep_warnings -Werror)
endif()
if(LOCKSTEP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lockstep_warnings -Wno-subobject-linkage) # which takes the files of a unit for headers
endif()
# -ffp-contract=off: a sum has the same bits in a vector body, in its tail and on every kind of processor.
target_compile_options(lockstep_flags INTERFACE "$<$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_WARNS>>:${lockstep_warnings}>"
                                                -ffp-contract=off)
target_link_libraries(lockstep_flags INTERFACE Threads::Threads)

if(LOCKSTEP_PCH)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/lockstep_pch.cpp CONTENT "")  # touched only if it is new
  add_library(lockstep_pch OBJECT ${CMAKE_BINARY_DIR}/lockstep_pch.cpp)
  target_link_libraries(lockstep_pch PUBLIC torch::cpu lockstep_flags)
  target_precompile_headers(lockstep_pch PRIVATE <torch/types.h>)
  target_compile_options(lockstep_pch PUBLIC -fpch-preprocess)  # ccache needs it with g++
endif()

# Lets a target see LibTorch, through the shared precompiled header where that is on.
function(lockstep_use_torch target)
  target_link_libraries(${target} PUBLIC torch::cpu)
  if(LOCKSTEP_PCH)
    target_precompile_headers(${target} REUSE_FROM lockstep_pch)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# lockstep_units(<target> <word>...): adds files. Those after `UNIT <name>` are compiled together as one unit, because
# most of the time that a file takes goes into headers that its neighbors include too. Names in unnamed namespaces
# must differ within a module. A file with compile options of its own stays a unit of its own, as does a file before
# the first UNIT. `UNIT <name> NO_TORCH` leaves out the precompiled header of LibTorch.
function(lockstep_units target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  set(unit "")
  set(is_name OFF)
  set(skips_torch OFF)
  foreach(word IN LISTS ARGN)
    if(word STREQUAL "UNIT")
      set(is_name ON)
      set(skips_torch OFF)
    elseif(is_name)
      set(unit ${word})
      set(is_name OFF)
    elseif(word STREQUAL "NO_TORCH")
      set(skips_torch ON)
      set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/Unity/unity_${unit}_cxx.cxx
                                  PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    else()
      target_sources(${target} PRIVATE ${word})
      if(unit)
        set_source_files_properties(${word} PROPERTIES UNITY_GROUP ${unit})
      endif()
      if(skips_torch)
        set_source_files_properties(${word} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endif()
  endforeach()
endfunction()

# lockstep_module(<name> [TORCH] SOURCES [UNIT <unit>] <file>... LINKS <library>...): the library lockstep_<name>.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "" "SOURCES;LINKS")
  add_library(lockstep_${name} STATIC)
  lockstep_units(lockstep_${name} ${arg_SOURCES})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${arg_LINKS})
  if(arg_TORCH)
    lockstep_use_torch(lockstep_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${name})
endfunction()
