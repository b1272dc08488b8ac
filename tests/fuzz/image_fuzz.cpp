// SPDX-License-Identifier: BSD-3-Clause
// An image file: its header, all of its pixels, a part of them, and pixels of a reduced image.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "data/codecs/decode.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kMaxBytes = 1 << 20;

void decode(std::span<const std::byte> file, const data::ImageHeader& header, const data::DecodeOptions& options) {
  data::Workspace workspace;
  data::Image image;
  try {
    data::decode_image(file, header, options, image, workspace);
  } catch (const DataError&) {
    return;
  }
  if (options.part && (image.height != options.part->height || image.width != options.part->width)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(bytes), size);
  data::ImageHeader header;
  try {
    header = data::read_image_header(file, kMaxBytes);
  } catch (const DataError&) {
    return 0;
  }
  if (header.height < 1 || header.width < 1) std::abort();
  decode(file, header, {});
  const data::Box part{header.height / 3, header.width / 3, (header.height + 2) / 3, (header.width + 2) / 3};
  decode(file, header, {.part = part});
  decode(file, header, {.part = part, .decodes_only_the_part = false});
  decode(file, header, {.applies_orientation = true});
  return 0;
}
