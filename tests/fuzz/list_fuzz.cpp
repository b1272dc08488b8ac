// SPDX-License-Identifier: BSD-3-Clause
// A list of images; each line that was accepted can be read.
#include <lockstep/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "data/stores/list_text.hpp"

using namespace lockstep;

namespace {

void read(const std::string& text, data::ListTarget target) {
  try {
    const data::ListLines lines(data::ListText(text, "fuzz"), {.target = target, .classes = 1000});
    for (std::int64_t i = 0; i < lines.size(); ++i) {
      if (lines.line(i).path.empty()) std::abort();
      if (target == data::ListTarget::classes) {
        for (const std::int64_t label : lines.labels(i)) {
          if (label < 0 || label >= 1000) std::abort();
        }
      } else if (target == data::ListTarget::numbers) {
        const std::vector<double> numbers = lines.numbers(i);
        if (std::ssize(numbers) != lines.numbers_per_line()) std::abort();
        for (const double number : numbers) {
          if (!std::isfinite(number)) std::abort();
        }
      }
    }
  } catch (const DataError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto target : {data::ListTarget::classes, data::ListTarget::numbers, data::ListTarget::none}) {
    read(text, target);
  }
  return 0;
}
