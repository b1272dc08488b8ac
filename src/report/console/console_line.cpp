// SPDX-License-Identifier: BSD-3-Clause
#include "report/console/console_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/text/duration.hpp"

namespace lockstep::report {

namespace {

constexpr std::size_t kMaxGroups = 3;

/// Always as many significant digits as requested, so that the eye sees small changes: 0.00100, 0.3210.
std::string with_digits(double value, int digits) {
  // The number as "%#.*g" of C, whose decimal point depends on the locale; fmt 9 would add a digit: 1234.4 as "1234.0".
  const std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  if (!std::isfinite(value)) return scientific;
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= digits) return scientific;
  return fmt::format("{:.{}f}", value, digits - 1 - exponent);
}

/// "0.00100", "decay 0.00100 head 0.0100", or of many groups "1.00e-05 to 0.00100".
std::string rates(const ConsoleValues& values) {
  if (values.group_lrs.empty()) return with_digits(values.lr, 3);
  if (values.group_lrs.size() > kMaxGroups) {
    const auto [low, high] = std::minmax_element(values.group_lrs.begin(), values.group_lrs.end(),
                                                 [](const auto& a, const auto& b) { return a.second < b.second; });
    return with_digits(low->second, 3) + " to " + with_digits(high->second, 3);
  }
  std::string text;
  for (const auto& [group, lr] : values.group_lrs) {
    text += (text.empty() ? "" : " ") + group + " " + with_digits(lr, 3);
  }
  return text;
}

/// "512M" or "1.5G", in powers of 1024.
std::string memory(double megabytes) {
  return megabytes < 1024 ? fmt::format("{:.0f}M", megabytes) : fmt::format("{:.1f}G", megabytes / 1024);
}

}  // namespace

std::string console_line(const ConsoleValues& values) {
  std::string line = fmt::format("step {}", values.step);
  if (values.total_steps > 0) line += fmt::format("/{}", values.total_steps);
  line += fmt::format(" epoch {} loss {} lr {}", values.epoch, with_digits(values.loss, 4), rates(values));
  const bool is_small = values.throughput < 100;
  line += " " + values.throughput_unit + " ";
  line += is_small ? fmt::format("{:.3g}", values.throughput) : fmt::format("{:.0f}", values.throughput);
  line += fmt::format(" data-wait {:.1f}%", 100 * values.data_wait_share);
  if (values.grad_norm) line += fmt::format(" grad-norm {:.3g}", *values.grad_norm);
  if (values.memory_mb) line += " mem " + memory(*values.memory_mb);
  if (values.mfu) line += fmt::format(" mfu {:.0f}%", 100 * *values.mfu);
  if (values.eta_seconds) line += " eta " + clock_text(*values.eta_seconds);
  return line;
}

}  // namespace lockstep::report
