// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoints/format/digest.hpp"

namespace lockstep::checkpoints {

inline constexpr std::uint16_t kFormatVersion = 1;
inline constexpr std::size_t kEnvelopeBytes = 4096;
inline constexpr std::uint32_t kCommittedFlag = 1;
inline constexpr std::array<char, 8> kMagic = {'\x89', 'L', 'S', 'C', 'P', '\r', '\n', '\x1A'};

/// The first 4096 bytes of a file, little endian: HDF5's user block. See FORMAT.md.
struct Envelope {
  std::array<char, 8> magic = kMagic;
  std::uint16_t format_version = kFormatVersion;
  std::uint16_t used_bytes = 128;
  std::uint32_t flags = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t index_offset = 0;  ///< position of the index, which is the end of the HDF5 part
  std::uint64_t step = 0;
  Digest128 index_digest;
  std::array<char, 64> writer = {};
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;  ///< files of the checkpoint
  std::array<char, 3960> reserved = {};
  std::uint64_t digest = 0;  ///< digest of all bytes before it

  std::span<const std::byte, kEnvelopeBytes> bytes() const {
    return std::as_bytes(std::span<const Envelope, 1>(this, 1));
  }
};
static_assert(sizeof(Envelope) == kEnvelopeBytes);

/// Which program wrote an HDF5 file, as far as its first bytes state: "Keras", "PyTables", "MATLAB", "NeXus", otherwise
/// "another program".
std::string hdf5_writer(std::string_view head);

/// Sets the digest.
void seal(Envelope& envelope);

/// The envelope that a file begins with, checked.
/// @param head        the first bytes of the file, up to kEnvelopeBytes
/// @param file_bytes  its real size
/// @throws CheckpointError  not a checkpoint (with what it is), another version, unfinished, damaged, or of another
/// size
Envelope parse_envelope(const std::string& path, std::span<const std::byte> head, std::uint64_t file_bytes);

}  // namespace lockstep::checkpoints
