// SPDX-License-Identifier: BSD-3-Clause
// An npy or npz file, as sources of data read it.
#include "array_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  constexpr std::string_view kHdf5 = "\x89HDF";
  if (std::string_view(reinterpret_cast<const char*>(data), size).starts_with(kHdf5)) return 0;
  static const lockstep::fuzz::MemoryInput file;
  file.set(bytes);
  lockstep::fuzz::read_file_of_arrays(file.path());
  return 0;
}
