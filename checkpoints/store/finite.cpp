// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/finite.hpp"

#include <cmath>

#include "checkpoints/format/elements.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

/// The first element with a part that is not finite; their number when there is none.
std::int64_t first_nonfinite(const Array& array) {
  return with_numbers(array, [&](auto load, std::int64_t count) {
    std::int64_t number = 0;
    while (number < count && std::isfinite(static_cast<double>(load(number)))) ++number;
    return number / (is_complex(array.dtype) ? 2 : 1);
  });
}

}  // namespace

std::string nonfinite_in(const std::string& path, const std::string& group) {
  std::string words;
  std::size_t others = 0;
  for (const ArrayInfo& info : read_checkpoint_index(path).arrays) {
    const bool counts = info.path.starts_with(group + "/") && info.first_path.empty();
    if (!counts || info.statistics.nans + info.statistics.infs == 0) continue;
    if (!words.empty()) {
      ++others;
      continue;
    }
    const Array array = read_array(path, info.path);
    words = info.path + " holds " + std::to_string(info.statistics.nans) + " NaN and " +
            std::to_string(info.statistics.infs) + " infinite elements, the first at " +
            shape_text(position_of(first_nonfinite(array), array.shape));
  }
  return others == 0 ? words : words + ", and " + std::to_string(others) + " more arrays likewise";
}

}  // namespace lockstep::checkpoints
