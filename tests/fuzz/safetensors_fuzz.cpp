// SPDX-License-Identifier: BSD-3-Clause
// A safetensors file.
#include <lockstep/core/error.hpp>

#include "checkpoints/foreign/safetensors.hpp"

using namespace lockstep::checkpoints;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read_safetensors(MemorySource(std::as_bytes(std::span(data, size))));
  } catch (const lockstep::CheckpointError&) {
  }
  return 0;
}
