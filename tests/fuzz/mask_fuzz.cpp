// SPDX-License-Identifier: BSD-3-Clause
// A mask, and the transforms that move image and mask together.
#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "data/transforms/pipeline.hpp"

using namespace lockstep;

namespace {

constexpr int kSide = 8;
constexpr std::int64_t kClasses = 5;

data::Pipeline pipeline_of(std::vector<std::string> lines, bool is_training) {
  return data::Pipeline({.lines = std::move(lines),
                         .key = "data.transform",
                         .channels = 3,
                         .seed = 1,
                         .is_training = is_training,
                         .max_bytes = 1 << 20,
                         .has_masks = true});
}

/// A mask of these bytes for an image of its size, or of another one.
void run(const data::Pipeline& pipeline, std::span<const std::byte> file, data::ImageSize size, std::int64_t position) {
  const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width) * 3, 7);
  std::vector<float> out(std::size_t{3} * kSide * kSide);
  data::Workspace workspace;
  try {
    pipeline.run({.pixels = pixels, .shape = {size.height, size.width, 3}}, {.position = position}, out, workspace);
    pipeline.run_mask({.file = file}, kClasses, workspace);
  } catch (const DataError&) {
    return;
  }
  if (workspace.mask.height != kSide || workspace.mask.width != kSide) std::abort();
  for (const std::uint8_t value : workspace.mask.pixels) {
    if (value >= kClasses && value != data::kIgnoredPixel) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const data::Pipeline pipelines[] = {
      pipeline_of({"random_resized_crop,size=8", "horizontal_flip", "normalize"}, true),
      pipeline_of({"rotate,degrees=30", "resize,size=8,8", "normalize"}, true),
      pipeline_of({"resize,size=9,9", "center_crop,size=8", "normalize"}, false)};
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(bytes), size);
  data::ImageSize stated{kSide, kSide};
  try {
    stated = data::read_image_header(file, 1 << 20).size();
  } catch (const DataError&) {
  }
  if (stated.height > 1024 || stated.width > 1024) return 0;  // the image would take most of the time
  for (const data::Pipeline& pipeline : pipelines) {
    run(pipeline, file, stated, static_cast<std::int64_t>(size));
    run(pipeline, file, {kSide + 1, kSide}, 0);
  }
  return 0;
}
