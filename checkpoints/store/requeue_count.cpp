// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/requeue_count.hpp"

#include <string>

#include "checkpoints/disk/disk.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr const char* kName = "STARTS";

}  // namespace

RequeueCount read_requeue_count(const std::string& directory) {
  FileReader file(directory + "/" + kName);
  std::string step;
  std::string count;
  RequeueCount count_of_starts;
  const bool is_whole = static_cast<bool>(file >> step >> count_of_starts.step >> count >> count_of_starts.count);
  const bool is_known =
      is_whole && step == "step" && count == "count" && count_of_starts.step >= 0 && count_of_starts.count > 0;
  return is_known ? count_of_starts : RequeueCount();
}

std::int64_t note_start(const std::string& directory, std::int64_t step, bool is_first) {
  const RequeueCount before = read_requeue_count(directory);
  const std::int64_t count = is_first || before.step != step ? 1 : before.count + 1;
  const std::string text = "step " + std::to_string(step) + "\ncount " + std::to_string(count) + "\n";
  make_folders(directory);
  replace_file(directory, kName, text);
  return count;
}

}  // namespace lockstep::checkpoints
