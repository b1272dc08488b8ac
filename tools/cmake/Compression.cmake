# SPDX-License-Identifier: BSD-3-Clause
# lockstep_compression: libdeflate, liblz4 and libzstd, which unpack chunks of HDF5 files, if all three are there.
# Static libraries where there are any, so that no program's start waits for them.
find_path(LOCKSTEP_DEFLATE_INCLUDE libdeflate.h)
find_path(LOCKSTEP_LZ4_INCLUDE lz4.h)
find_path(LOCKSTEP_ZSTD_INCLUDE zstd.h)
find_library(LOCKSTEP_DEFLATE_LIBRARY NAMES libdeflate.a deflate)
find_library(LOCKSTEP_LZ4_LIBRARY NAMES liblz4.a lz4)
find_library(LOCKSTEP_ZSTD_LIBRARY NAMES libzstd.a zstd)
mark_as_advanced(LOCKSTEP_DEFLATE_INCLUDE LOCKSTEP_LZ4_INCLUDE LOCKSTEP_ZSTD_INCLUDE LOCKSTEP_DEFLATE_LIBRARY
                 LOCKSTEP_LZ4_LIBRARY LOCKSTEP_ZSTD_LIBRARY)

add_library(lockstep_compression INTERFACE IMPORTED)
set(LOCKSTEP_HAS_COMPRESSION OFF)
set(LOCKSTEP_COMPRESSION_LIBRARIES "")
if(LOCKSTEP_DEFLATE_INCLUDE
   AND LOCKSTEP_LZ4_INCLUDE
   AND LOCKSTEP_ZSTD_INCLUDE
   AND LOCKSTEP_DEFLATE_LIBRARY
   AND LOCKSTEP_LZ4_LIBRARY
   AND LOCKSTEP_ZSTD_LIBRARY)
  set(LOCKSTEP_HAS_COMPRESSION ON)
  set(LOCKSTEP_COMPRESSION_LIBRARIES ${LOCKSTEP_DEFLATE_LIBRARY} ${LOCKSTEP_LZ4_LIBRARY} ${LOCKSTEP_ZSTD_LIBRARY})
  target_include_directories(lockstep_compression SYSTEM INTERFACE ${LOCKSTEP_DEFLATE_INCLUDE}
                                                                   ${LOCKSTEP_LZ4_INCLUDE} ${LOCKSTEP_ZSTD_INCLUDE})
  target_link_libraries(lockstep_compression INTERFACE ${LOCKSTEP_COMPRESSION_LIBRARIES})
endif()
