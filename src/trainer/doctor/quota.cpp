// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/quota.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep::trainer {

std::string device_in(const std::string& lines, const std::string& number) {
  for (const std::string& line : lines_in(lines)) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() > 2 && words[2] == number && words.end() - dash > 2) return dash[2];
  }
  return "";
}

std::optional<std::int64_t> quota_left(const std::string& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return std::nullopt;
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string lines(std::istreambuf_iterator<char>(mounts), {});
  const std::string device =
      device_in(lines, std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev)));
  dqblk quota{};
  const bool is_known = !device.empty() && quotactl(QCMD(Q_GETQUOTA, USRQUOTA), device.c_str(),
                                                    static_cast<int>(geteuid()), reinterpret_cast<char*>(&quota)) == 0;
  const std::uint64_t blocks = quota.dqb_bsoftlimit > 0 ? quota.dqb_bsoftlimit : quota.dqb_bhardlimit;
  if (!is_known || blocks == 0) return std::nullopt;
  constexpr std::uint64_t kBlock = 1024;
  const auto left = static_cast<std::int64_t>(blocks * kBlock) - static_cast<std::int64_t>(quota.dqb_curspace);
  return std::max<std::int64_t>(0, left);
}

}  // namespace lockstep::trainer
