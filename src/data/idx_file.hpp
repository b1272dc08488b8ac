// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// An IDX file of bytes: two zero bytes, the type 8 (unsigned byte), the number of dimensions, each dimension as a
/// big-endian 32-bit number, then the bytes, the last dimension running fastest.
/// Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
struct IdxArray {
  std::vector<std::int64_t> shape;  ///< no dimension is 0
  std::vector<std::uint8_t> bytes;
};

/// Reads an IDX file, plain or compressed by gzip.
/// @throws DataError  it cannot be read, is no such file, or does not hold exactly what its header says
IdxArray read_idx(const std::string& path);

/// Such as "60000 x 28 x 28".
std::string words_of(const std::vector<std::int64_t>& shape);

}  // namespace lockstep::data
