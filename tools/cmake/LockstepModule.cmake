# SPDX-License-Identifier: BSD-3-Clause
add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:include>)
# Warnings are for targets of this project, not for those of a user's.
define_property(TARGET PROPERTY LOCKSTEP_WARNS INITIALIZE_FROM_VARIABLE LOCKSTEP_WARNS)
set(LOCKSTEP_WARNS ON)
set(lockstep_warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
# -ffp-contract=off: a sum has the same bits in a vector body, in its tail and on every kind of processor.
target_compile_options(lockstep_flags INTERFACE "$<$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_WARNS>>:${lockstep_warnings}>"
                                                -ffp-contract=off)
target_link_libraries(lockstep_flags INTERFACE Threads::Threads)

if(LOCKSTEP_PCH)
  file(WRITE ${CMAKE_BINARY_DIR}/lockstep_pch.cpp "")
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

# lockstep_module(<name> [TORCH] SOURCES <file>... LINKS <library>...): the static library lockstep_<name>.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "" "SOURCES;LINKS")
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${arg_LINKS})
  if(arg_TORCH)
    lockstep_use_torch(lockstep_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${name})
endfunction()
