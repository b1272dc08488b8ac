// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/starts.hpp"

#include <fstream>
#include <string>

#include "checkpoints/store/disk.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr const char* kName = "STARTS";

}  // namespace

Starts read_starts(const std::string& directory) {
  std::ifstream file(directory + "/" + kName);
  std::string step;
  std::string count;
  Starts starts;
  const bool is_whole = static_cast<bool>(file >> step >> starts.step >> count >> starts.count);
  const bool is_known = is_whole && step == "step" && count == "count" && starts.step >= 0 && starts.count > 0;
  return is_known ? starts : Starts();
}

std::int64_t note_start(const std::string& directory, std::int64_t step, bool is_first) {
  const Starts before = read_starts(directory);
  const std::int64_t count = is_first || before.step != step ? 1 : before.count + 1;
  const std::string text = "step " + std::to_string(step) + "\ncount " + std::to_string(count) + "\n";
  make_folders(directory);
  replace_file(directory, kName, text);
  return count;
}

}  // namespace lockstep::checkpoints
