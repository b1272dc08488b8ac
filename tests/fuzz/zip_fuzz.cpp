// SPDX-License-Identifier: BSD-3-Clause
// A zip archive of PyTorch or NumPy, and a .npy header by itself.
#include <lockstep/core/error.hpp>

#include "checkpoints/foreign/npz.hpp"
#include "checkpoints/foreign/pytorch.hpp"

using namespace lockstep::checkpoints;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const MemorySource source(bytes);
    const Zip zip(source);
    is_pytorch(zip) ? read_pytorch(zip) : read_npz(zip);
  } catch (const lockstep::CheckpointError&) {
  }
  try {
    parse_npy(bytes);
  } catch (const lockstep::CheckpointError&) {
  }
  return 0;
}
