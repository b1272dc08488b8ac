// SPDX-License-Identifier: BSD-3-Clause
// A pickle by itself, and as the data.pkl of a PyTorch file with one storage, so that tensors are made of it.
#include <lockstep/core/error.hpp>

#include <zlib.h>

#include "checkpoints/foreign/pickle.hpp"
#include "checkpoints/foreign/pytorch.hpp"

using namespace lockstep::checkpoints;

namespace {

std::string le(std::uint64_t value, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string zip_of(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string file, directory;
  for (const auto& [name, bytes] : records) {
    const auto* first = reinterpret_cast<const Bytef*>(bytes.data());
    const std::string fields = le(20, 2) + le(0, 8) + le(crc32_z(0, first, bytes.size()), 4) + le(bytes.size(), 4) +
                               le(bytes.size(), 4) + le(name.size(), 2) + le(0, 2);
    directory += "PK\x01\x02" + le(20, 2) + fields + le(0, 8) + le(0, 2) + le(file.size(), 4) + name;
    file += "PK\x03\x04" + fields + name + bytes;
  }
  return file + directory + "PK\x05\x06" + le(0, 4) + le(records.size(), 2) + le(records.size(), 2) +
         le(directory.size(), 4) + le(file.size(), 4) + le(0, 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string program(reinterpret_cast<const char*>(data), size);
  try {
    parse_pickle(std::as_bytes(std::span(program)));
  } catch (const lockstep::CheckpointError&) {
  }
  const std::string file = zip_of({{"a/data.pkl", program}, {"a/data/0", std::string(24, '\1')}});
  try {
    const MemorySource source(std::as_bytes(std::span(file)));
    read_pytorch(Zip(source));
  } catch (const lockstep::CheckpointError&) {
  }
  return 0;
}
