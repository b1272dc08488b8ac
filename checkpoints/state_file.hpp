// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <string>

#include "digest.hpp"

namespace lockstep::checkpoints {

/// What identifies a file: two with equal seals hold the same archive.
struct Seal {
  std::uint64_t step = 0;
  Digest128 digest;
  bool operator==(const Seal&) const = default;
};

/// Writes a new file and fsyncs it. A failure leaves it behind, unfinished.
Seal write_state_file(const std::string& path, std::int64_t step, const Archive& archive);

/// Reads the beginning of a file and checks it: enough to tell a finished file from anything else, not to find damage.
Seal read_seal(const std::string& path);

/// Reads a file into memory and checks every byte before HDF5 sees one.
/// @param step  set to the step the file was written at
Archive read_state_file(const std::string& path, std::uint64_t& step);

}  // namespace lockstep::checkpoints
