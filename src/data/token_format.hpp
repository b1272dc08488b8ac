// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::data {

/// The place and the type of the tokens in a file: little-endian integers, one after the other.
struct TokenFormat {
  std::size_t begin = 0;  ///< bytes before the first token
  std::size_t width = 2;  ///< bytes per token: 2, 4 or 8
  bool is_signed = false;
  std::string text = "";  ///< "uint16 after the header of llm.c", for the log
};

/// Recognizes the headers of llm.c and of NumPy's .npy files. Other files contain tokens only.
/// @param type  data.token_type: "auto", or the type of a file that contains tokens only. "auto" is uint16 there
/// @throws DataError  the header contradicts the size of the file or the type, the content is no integers of a
///                    supported type, or tokens of the type auto look like integers of 32 or 64 bits; the message names
///                    the path
TokenFormat token_format(std::span<const std::uint8_t> file, const std::string& type, const std::string& path);

/// The token at an index. @return  -1 = the number is negative or exceeds 63 bits
std::int64_t token_at(std::span<const std::uint8_t> file, const TokenFormat& format, std::size_t index);

}  // namespace lockstep::data
