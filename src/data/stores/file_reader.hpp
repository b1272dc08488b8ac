// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// Reads a whole file. Errors of a network file system that can be transient (EIO, ESTALE, ...) are retried after 0.1,
/// 1 and 10 s.
/// @param max_bytes  larger files are refused before memory is requested
/// @param bytes      can hold the result; its memory is reused
/// @throws DataError  missing, unreadable, not a regular file, or too large
std::span<const std::byte> read_file(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes);

/// Requests that the system reads a file in advance. Errors are ignored.
void read_file_ahead(const std::string& path) noexcept;

}  // namespace lockstep::data
