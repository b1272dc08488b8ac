// SPDX-License-Identifier: BSD-3-Clause
// The file config.json of a folder of timm, and the model and the preparation of images that it describes.
#include <lockstep/core/error.hpp>

#include <cstdint>
#include <string>

#include "checkpoints/interop/timm_config.hpp"
#include "families/recognition.hpp"

using namespace lockstep::checkpoints;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const TimmConfig config = parse_timm_config({reinterpret_cast<const char*>(data), size}, "config.json");
    evaluation_lines(config.images, config.path);
    lockstep::families::describe_model(config);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
