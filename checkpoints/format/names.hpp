// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Names in files and in messages, and the limits of what an archive, and with it a file, may hold: the writer keeps to
/// them and the reader checks them.
namespace lockstep::checkpoints {

inline constexpr std::size_t kMaxPartBytes = 1024;
inline constexpr std::size_t kMaxDepth = 32;           ///< parts of a path
inline constexpr std::size_t kMaxObjects = 1'000'000;  ///< groups and arrays of a file
inline constexpr std::size_t kMaxAttributeBytes = 60'000;
inline constexpr std::size_t kMaxDimensions = 32;
inline constexpr const char* kDTypeAttribute =
    "torch_dtype";  ///< attribute of every array of a file; its value is name_of(dtype)

/// Whether `part` may stand between two slashes of a path.
bool is_part(const std::string& part);
/// Whether `path` is absolute, made of good parts and not too deep; "/" itself is not.
bool is_path(const std::string& path);

/// Bytes of an array; none when a dimension is negative, there are too many, or the product overflows.
std::optional<std::uint64_t> nbytes_of(DType dtype, const std::vector<std::int64_t>& shape);

/// "tensor 'a'", safe to print.
std::string quoted(const std::string& kind, const std::string& name);
/// "'a'", safe to print.
std::string in_quotes(const std::string& name);

}  // namespace lockstep::checkpoints
