// SPDX-License-Identifier: BSD-3-Clause
// A chunk of HDF5, with the filters that were applied to it.
#include "chunk_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::fuzz::unpack_chunk(std::as_bytes(std::span(data, size)));
  return 0;
}
