# SPDX-License-Identifier: BSD-3-Clause
# lockstep_png: libpng, the static one where there is one, so that no program's start waits for it.
find_package(PNG REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/LinkEither.cmake)
get_filename_component(png_folder "${PNG_LIBRARY}" DIRECTORY)
find_library(LOCKSTEP_STATIC_PNG libpng.a HINTS ${png_folder})
mark_as_advanced(LOCKSTEP_STATIC_PNG)
set(LOCKSTEP_PNG_LIBRARIES ${PNG_LIBRARIES})
if(LOCKSTEP_STATIC_PNG)
  set(LOCKSTEP_PNG_LIBRARIES ${LOCKSTEP_STATIC_PNG} -lz -lm)
endif()

add_library(lockstep_png INTERFACE IMPORTED)
target_include_directories(lockstep_png SYSTEM INTERFACE ${PNG_INCLUDE_DIRS})
lockstep_link_either(lockstep_png "${LOCKSTEP_PNG_LIBRARIES}" "${PNG_LIBRARIES}")
