// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

// The files in the folder `data.cache`.
namespace lockstep::data {

/// The folder that `data.cache` selects: `auto` = $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep, `off` = "".
std::string cache_folder(const std::string& value);

/// The path of a file of a cache.
/// @param key     text that the content depends on; the name of the file is its hash
/// @param ending  of the name, such as ".list"
std::string cache_path(const std::string& cache, std::string_view key, const std::string& ending);

/// Whether a file or folder that changed at this time can no longer change without getting another time: the change is
/// at least 2 s ago, which is more than the resolution of the times of all common file systems.
bool is_settled(std::int64_t changed_ns);

/// Writes a file completely or not at all, and creates its folder. @return  whether it was written
bool write_whole(const std::string& path, std::initializer_list<std::string_view> parts);

/// A hash of a text, and its 16 hexadecimal digits.
std::uint64_t hash_of_text(std::string_view text);
std::string hex(std::uint64_t value);

}  // namespace lockstep::data
