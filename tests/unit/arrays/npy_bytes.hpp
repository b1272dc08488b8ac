// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::arrays {

/// An npy file.
/// @param descr    element type, such as "<f4"
/// @param shape    as in Python, such as "2, 3" and "5,"
/// @param version  1, 2 or 3 of the format
inline std::string npy_bytes(const std::string& descr, const std::string& shape, const std::string& elements,
                             bool is_fortran = false, int version = 1) {
  const std::string header = "{'descr': '" + descr + "', 'fortran_order': " + (is_fortran ? "True" : "False") +
                             ", 'shape': (" + shape + "), }   \n";
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + elements;
}

}  // namespace lockstep::arrays
