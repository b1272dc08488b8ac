// SPDX-License-Identifier: BSD-3-Clause
// Zip archives made manually, so that they may lie.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

/// Little-endian bytes of a number.
inline std::string le(std::uint64_t value, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

struct ZipEntry {
  std::string name;
  std::string bytes;
  std::string stated_bytes = {};  ///< instead of the length, in the directory: 4 bytes
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  bool has_wrong_crc = false;
  std::string local_name = {};  ///< name in the local header, where it differs
  std::int64_t header = -1;     ///< instead of where it is
};

inline std::uint32_t crc_of(const std::string& bytes) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

inline std::string zip_of(const std::vector<ZipEntry>& records, const std::string& comment = "") {
  std::string file, directory;
  for (const ZipEntry& record : records) {
    const auto header = record.header >= 0 ? static_cast<std::uint64_t>(record.header) : file.size();
    const std::string size = le(record.bytes.size(), 4);
    const std::string told = record.stated_bytes.empty() ? size : record.stated_bytes;
    const std::string head = le(record.flags, 2) + le(record.method, 2) + le(0, 4) +
                             le(crc_of(record.bytes) ^ (record.has_wrong_crc ? 1U : 0U), 4);
    const std::string& local = record.local_name.empty() ? record.name : record.local_name;
    file += "PK\x03\x04" + le(20, 2) + head + told + told + le(local.size(), 2) + le(0, 2) + local + record.bytes;
    directory += "PK\x01\x02" + le(20, 2) + le(20, 2) + head + told + told + le(record.name.size(), 2) + le(0, 2) +
                 le(0, 2) + le(0, 2) + le(0, 2) + le(0, 4) + le(header, 4) + record.name;
  }
  return file + directory + "PK\x05\x06" + le(0, 4) + le(records.size(), 2) + le(records.size(), 2) +
         le(directory.size(), 4) + le(file.size(), 4) + le(comment.size(), 2) + comment;
}

}  // namespace lockstep::checkpoints
