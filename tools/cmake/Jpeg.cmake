# SPDX-License-Identifier: BSD-3-Clause
# lockstep_jpeg: libjpeg-turbo (2.0 or newer, for partial decoding), and lockstep_webp where libwebp was found. Static
# libraries where there are any, so that no program's start waits for them.
find_package(JPEG REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/LinkEither.cmake)
get_filename_component(jpeg_folder "${JPEG_LIBRARY}" DIRECTORY)
find_library(LOCKSTEP_STATIC_JPEG libjpeg.a HINTS ${jpeg_folder})
find_path(LOCKSTEP_WEBP_INCLUDE webp/decode.h)
find_library(LOCKSTEP_WEBP_LIBRARY NAMES libwebp.a webp)
mark_as_advanced(LOCKSTEP_STATIC_JPEG LOCKSTEP_WEBP_INCLUDE LOCKSTEP_WEBP_LIBRARY)
set(LOCKSTEP_JPEG_LIBRARIES ${JPEG_LIBRARIES})
if(LOCKSTEP_STATIC_JPEG)
  set(LOCKSTEP_JPEG_LIBRARIES ${LOCKSTEP_STATIC_JPEG})
endif()

add_library(lockstep_jpeg INTERFACE IMPORTED)
target_include_directories(lockstep_jpeg SYSTEM INTERFACE ${JPEG_INCLUDE_DIRS})
lockstep_link_either(lockstep_jpeg "${LOCKSTEP_JPEG_LIBRARIES}" "${JPEG_LIBRARIES}")

add_library(lockstep_webp INTERFACE IMPORTED)
set(LOCKSTEP_HAS_WEBP OFF)
set(LOCKSTEP_WEBP_LIBRARIES "")
if(LOCKSTEP_WEBP_INCLUDE AND LOCKSTEP_WEBP_LIBRARY)
  set(LOCKSTEP_HAS_WEBP ON)
  set(LOCKSTEP_WEBP_LIBRARIES ${LOCKSTEP_WEBP_LIBRARY} -lm)
  target_include_directories(lockstep_webp SYSTEM INTERFACE ${LOCKSTEP_WEBP_INCLUDE})
  target_link_libraries(lockstep_webp INTERFACE ${LOCKSTEP_WEBP_LIBRARIES})
endif()
