// SPDX-License-Identifier: BSD-3-Clause
// In place of webp.cpp where libwebp was not found.
#include <lockstep/core/error.hpp>

#include "data/codecs/codecs.hpp"

namespace lockstep::data {

bool reads_webp() noexcept { return false; }

ImageHeader read_webp_header(FileBytes) {
  throw DataError(
      "this build does not read WebP files; install libwebp-dev and build again, or convert the file to "
      "PNG or JPEG");
}

void decode_webp(FileBytes file, const ImageHeader&, Image&) { read_webp_header(file); }

}  // namespace lockstep::data
