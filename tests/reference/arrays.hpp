// SPDX-License-Identifier: BSD-3-Clause
// Arrays that stand beside JSON files, as .npy files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing::reference {

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// Reads the values of an .npy file in C order.
/// @param type  "|u1" or "<f4"; the size of T matches it
template <class T>
std::vector<T> read_npy(const std::filesystem::path& path, const std::string& type) {
  const std::vector<std::byte> bytes = read_bytes(path);
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) {
    throw std::runtime_error(path.string() + " is not an .npy file");
  }
  const std::size_t begin = 10 + std::to_integer<std::size_t>(bytes[8]) + 256 * std::to_integer<std::size_t>(bytes[9]);
  const std::string header(reinterpret_cast<const char*>(bytes.data()) + 10, begin - 10);
  if (header.find(type) == std::string::npos || header.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error(path.string() + " has another type: " + header);
  }
  std::vector<T> values((bytes.size() - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(T));
  return values;
}

/// The shape of an .npy file.
inline std::vector<int> npy_shape(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_bytes(path);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 256));
  std::vector<int> shape;
  std::size_t position = text.find("'shape': (") + 10;
  while (position < text.size() && text[position] != ')') {
    std::size_t used = 0;
    shape.push_back(std::stoi(text.substr(position), &used));
    position += used;
    while (position < text.size() && (text[position] == ',' || text[position] == ' ')) ++position;
  }
  return shape;
}

}  // namespace lockstep::testing::reference
