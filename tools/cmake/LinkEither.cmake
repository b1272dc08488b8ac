# SPDX-License-Identifier: BSD-3-Clause
# lockstep_link_either(<target> <for programs> <for shared libraries>): links one of two lists of libraries, by what the
# target becomes a part of in the end.
function(lockstep_link_either target for_programs for_libraries)
  set(is_library $<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>)
  target_link_libraries(${target} INTERFACE $<IF:${is_library},${for_libraries},${for_programs}>)
endfunction()
