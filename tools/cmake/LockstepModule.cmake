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

# lockstep_sees_torch(<file> <variable>): whether a file includes LibTorch, itself or through headers of this project.
function(lockstep_sees_torch file variable)
  get_property(sees GLOBAL PROPERTY LOCKSTEP_SEES_TORCH_${file})
  if("${sees}" STREQUAL "")
    set(sees OFF)
    file(STRINGS ${file} includes REGEX "^#include [<\"]")
    if("${includes}" MATCHES "#include <(torch|ATen|c10)/")
      set(sees ON)
    endif()
    foreach(line IN LISTS includes)
      if(sees)
        break()
      elseif(line MATCHES "<(lockstep/[^>]+)>")
        lockstep_sees_torch(${PROJECT_SOURCE_DIR}/include/${CMAKE_MATCH_1} sees)
      elseif(line MATCHES "\"((mpi|checkpoints)/[^\"]+)\"")
        lockstep_sees_torch(${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1} sees)
      elseif(line MATCHES "\"([^\"]+)\"")
        lockstep_sees_torch(${PROJECT_SOURCE_DIR}/src/${CMAKE_MATCH_1} sees)
      endif()
    endforeach()
    set_property(GLOBAL PROPERTY LOCKSTEP_SEES_TORCH_${file} ${sees})
  endif()
  set(${variable} ${sees} PARENT_SCOPE)
endfunction()

# lockstep_units(<target> <file>...): adds files. Neighbors are compiled together, in units of up to 120 kB, because
# most of the time that a file takes goes into headers that its neighbors include too. Files that include LibTorch are
# in other units than the rest, which does without its precompiled header. Names in unnamed namespaces must differ
# within a module. A file with compile options of its own stays a unit of its own.
function(lockstep_units target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  target_sources(${target} PRIVATE ${ARGN})
  foreach(kind IN ITEMS plain torch)
    set(number_${kind} 0)
    set(bytes_${kind} 0)
  endforeach()
  foreach(file IN LISTS ARGN)
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    lockstep_sees_torch(${path} sees)
    set(kind plain)
    if(sees)
      set(kind torch)
    else()
      set_source_files_properties(${file} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    get_source_file_property(options ${file} COMPILE_OPTIONS)
    if(options)
      continue()
    endif()
    file(SIZE ${path} bytes)
    math(EXPR bytes_${kind} "${bytes_${kind}} + ${bytes}")
    if(bytes_${kind} GREATER 120000)
      math(EXPR number_${kind} "${number_${kind}} + 1")
      set(bytes_${kind} ${bytes})
    endif()
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${kind}_${number_${kind}})
    if(NOT sees)
      set_source_files_properties(
        ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/Unity/unity_plain_${number_plain}_cxx.cxx
        PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# lockstep_brief_optimization(<target>...): for modules without loops over data; they compile in three quarters of the
# time.
function(lockstep_brief_optimization)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo,Release>:-O1>)
  endforeach()
endfunction()

# lockstep_module(<name> [TORCH] [FOLDERS <folder>...] [WITHOUT <file>...] LINKS <library>...): the library
# lockstep_<name>, of all files of this folder and those in it, or of these folders alone.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "" "FOLDERS;WITHOUT;LINKS")
  if(arg_FOLDERS)
    list(TRANSFORM arg_FOLDERS APPEND /*.cpp OUTPUT_VARIABLE patterns)
    file(GLOB files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  else()
    file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  endif()
  if(arg_WITHOUT)
    list(REMOVE_ITEM files ${arg_WITHOUT})
  endif()
  add_library(lockstep_${name} STATIC)
  lockstep_units(lockstep_${name} ${files})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${arg_LINKS})
  if(arg_TORCH)
    lockstep_use_torch(lockstep_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${name})
endfunction()
