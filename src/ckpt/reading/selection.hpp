// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

/// Which arrays of a file and which elements of an array a command is about.
namespace lockstep::ckpt {

/// The words of --filter: globs (`layers.*.weight`; `*` matches dots and slashes too) and regular expressions between
/// slashes (`/^conv[0-9]/`, which may match any part of a name).
class Filter {
 public:
  /// @param patterns  none matches everything, and of several one is enough
  /// @throws Failure  a malformed expression
  explicit Filter(const std::vector<std::string>& patterns);

  bool matches(const std::string& name) const;

 private:
  std::vector<std::string> globs_;
  std::vector<std::regex> expressions_;
};

/// The indices that a slice selects in one dimension: begin, begin + step, ..., `count` of them.
struct Taken {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
  bool is_index = false;  ///< a single number: the dimension falls away

  bool operator==(const Taken&) const = default;
};

using ArraySlice = std::vector<Taken>;

/// Reads "[0:4, :, -1]" as Python does: `begin:end:step` with step > 0, negative numbers count from the end, ends
/// beyond the dimension are cut, and dimensions that are not mentioned are taken whole.
/// @param text   with its brackets; "" takes everything
/// @throws Failure  malformed, too many dimensions, or an index beyond the end
ArraySlice parse_slice(const std::string& text, const std::vector<std::int64_t>& shape);

/// The shape of the result: the counts of the dimensions that are not indexed by a single number.
std::vector<std::int64_t> shape_of(const ArraySlice& slice);

/// The positions of the elements of a slice in the whole array, in row-major order, at most `limit`.
std::vector<std::int64_t> elements_of(const ArraySlice& slice, const std::vector<std::int64_t>& shape,
                                      std::int64_t limit);

/// "w[0:4]" in "w" and "[0:4]"; a name without brackets at its end has an empty slice.
struct NameAndSlice {
  std::string name;
  std::string slice;
};
NameAndSlice split_slice(const std::string& text);

}  // namespace lockstep::ckpt
