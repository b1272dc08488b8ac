// SPDX-License-Identifier: BSD-3-Clause
// The attributes of an array in an HDF5 file: packing, units, gaps and names.
#include "array_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lockstep::fuzz::MemoryInput file;
  lockstep::fuzz::AttributeWriter(std::as_bytes(std::span(data, size))).write(file.path());
  lockstep::fuzz::read_file_of_arrays(file.path());
  return 0;
}
