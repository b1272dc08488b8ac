# SPDX-License-Identifier: BSD-3-Clause
include(ProcessorCount)
ProcessorCount(lockstep_cores)
separate_arguments(lockstep_mpirun_flags UNIX_COMMAND "${LOCKSTEP_MPIRUN_FLAGS}")
separate_arguments(lockstep_test_ranks UNIX_COMMAND "${LOCKSTEP_TEST_RANKS}")

add_custom_target(unit_tests) # builds all of them
add_custom_target(multirank_tests)

# lockstep_quick_build(<target>...): tests compile without the optimizations that take long, and without debug symbols.
function(lockstep_quick_build)
  foreach(target IN LISTS ARGN)
    # At -Og g++ takes values of variants for uninitialized.
    target_compile_options(
      ${target} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:-Og;-g0>"
                        "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-Wno-maybe-uninitialized>")
  endforeach()
endfunction()

# What most tests without LibTorch include takes a fifth of their time.
if(LOCKSTEP_PCH)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/lockstep_test_pch.cpp CONTENT "")
  add_library(lockstep_test_pch OBJECT ${CMAKE_BINARY_DIR}/lockstep_test_pch.cpp)
  target_link_libraries(lockstep_test_pch PUBLIC lockstep_flags GTest::gtest)
  target_precompile_headers(lockstep_test_pch PRIVATE <gtest/gtest.h> <nlohmann/json.hpp> <filesystem> <regex>)
  target_compile_options(lockstep_test_pch PUBLIC -fpch-preprocess)
  lockstep_quick_build(lockstep_test_pch)
endif()

# lockstep_test(<name> [TORCH] [TIMED] SOURCES <file>... LIBS <library>... [RANKS 1 2 3] [LABELS <label>...]
#               [TIMEOUT <s>] [SHARE <n>] [LOWER_LEVELS <filter>])
# One binary. Up to eight files are compiled together, in the order in which they are listed; each keeps its names in a
# namespace that has the name of the file. TORCH: it links LibTorch. TIMED: it measures time, so it is optimized as
# programs are. Without RANKS it runs alone as <name>; with RANKS it runs under mpirun as <name>.np1, <name>.np2, ...
# The short form of tools/test runs one of <n> cases, and with RANKS each case on one of the numbers of ranks.
# LOWER_LEVELS: the cases that a filter of GoogleTest names also run at lower processor levels, as <name>.generic and
# <name>.avx2, with RANKS on the last number of ranks.
# Exit code 77 means that every case was skipped; the test's output names the cases.
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "TIMEOUT;SHARE;LOWER_LEVELS" "SOURCES;LIBS;RANKS;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  if(NOT arg_SHARE)
    set(arg_SHARE 1)
  endif()
  add_executable(${name} ${arg_SOURCES})
  list(LENGTH arg_SOURCES files)
  math(EXPR units "(${files} + 7) / 8")
  math(EXPR unit_size "(${files} + ${units} - 1) / ${units}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE ${unit_size})
  if(name MATCHES "_unit$")
    add_dependencies(unit_tests ${name})
    list(APPEND arg_LABELS unit)
  endif()
  if(name MATCHES "_multirank$")
    add_dependencies(multirank_tests ${name})
    list(APPEND arg_LABELS multirank)
  endif()
  if(NOT arg_TIMED)
    lockstep_quick_build(${name})
    if(LOCKSTEP_PCH AND NOT arg_TORCH)
      target_precompile_headers(${name} REUSE_FROM lockstep_test_pch)
      target_compile_options(${name} PRIVATE -fpch-preprocess)
    endif()
  endif()
  if(arg_RANKS)
    target_link_libraries(${name} PRIVATE lockstep_test_mpi_main)
  else()
    target_link_libraries(${name} PRIVATE lockstep_test_main)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  if(arg_TORCH)
    lockstep_use_torch(${name})
  endif()
  if(NOT arg_RANKS)
    add_test(NAME ${name} COMMAND ${name})
    _lockstep_test_properties(${name} 1 ${arg_TIMEOUT} "${arg_LABELS}" "0/${arg_SHARE}")
  endif()
  list(LENGTH arg_RANKS share)
  if("reference" IN_LIST arg_LABELS)
    set(share 1) # the numbers are those of one number of ranks
  endif()
  set(number 0)
  set(command ${name})
  set(most 1)
  foreach(ranks IN LISTS arg_RANKS)
    if(ranks IN_LIST lockstep_test_ranks)
      set(command ${LOCKSTEP_MPIRUN} ${lockstep_mpirun_flags} -np ${ranks} $<TARGET_FILE:${name}>)
      set(most ${ranks})
      add_test(NAME ${name}.np${ranks} COMMAND ${command})
      _lockstep_test_properties(${name}.np${ranks} ${ranks} ${arg_TIMEOUT} "${arg_LABELS}" "${number}/${share}")
    endif()
    math(EXPR number "${number} + 1")
  endforeach()
  if(arg_LOWER_LEVELS)
    foreach(level generic avx2)
      add_test(NAME ${name}.${level} COMMAND ${command} "--gtest_filter=${arg_LOWER_LEVELS}")
      _lockstep_test_properties(${name}.${level} ${most} ${arg_TIMEOUT} "level_${level}" "0/1")
      set_property(TEST ${name}.${level} APPEND PROPERTY ENVIRONMENT LOCKSTEP_CPU=${level})
    endforeach()
  endif()
endfunction()

function(_lockstep_test_properties test ranks timeout labels draw)
  math(EXPR mpi_timeout "${timeout} - 5") # so that mpirun ends its ranks
  if(ranks GREATER lockstep_cores)
    set(ranks ${lockstep_cores})
  endif()
  set_tests_properties(
    ${test}
    PROPERTIES TIMEOUT ${timeout}
               PROCESSORS ${ranks}
               LABELS "${labels}"
               SKIP_RETURN_CODE 77
               ENVIRONMENT "OMP_NUM_THREADS=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
LOCKSTEP_SOURCE_DIR=${PROJECT_SOURCE_DIR};LOCKSTEP_BINARY_DIR=${PROJECT_BINARY_DIR};\
LOCKSTEP_MPIRUN=${LOCKSTEP_MPIRUN};LOCKSTEP_MPIRUN_FLAGS=${LOCKSTEP_MPIRUN_FLAGS};LOCKSTEP_TEST_DRAW=${draw};\
MPIEXEC_TIMEOUT=${mpi_timeout}")
endfunction()
