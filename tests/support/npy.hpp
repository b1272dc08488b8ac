// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Writes an .npy file of float32, row by row.
inline void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
                      const std::vector<float>& values) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += std::to_string(size) + ",";
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sizes + "), }";
  header.resize((10 + header.size() + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  const std::string start("\x93NUMPY\x01\x00", 8);
  std::ofstream file(path, std::ios::binary);
  file << start << static_cast<char>(header.size() & 255U) << static_cast<char>(header.size() >> 8U) << header;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
}

}  // namespace lockstep::testing
