// SPDX-License-Identifier: BSD-3-Clause
// The check of an archive before LibTorch loads it as a TorchScript module.
#include <lockstep/core/error.hpp>

#include <cstdint>
#include <span>

#include "checkpoints/interop/script_records.hpp"

using namespace lockstep::checkpoints;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    fault_of_script(MemorySource(std::as_bytes(std::span(data, size))));
  } catch (const lockstep::CheckpointError&) {
  }
  return 0;
}
