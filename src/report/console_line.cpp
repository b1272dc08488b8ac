// SPDX-License-Identifier: BSD-3-Clause
#include "report/console_line.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "core/duration.hpp"

namespace lockstep::report {

namespace {

/// Always as many significant digits as requested, so that the eye sees small changes: 0.00100, 0.3210.
std::string with_digits(double value, int digits) {
  std::array<char, 32> buffer{};  // fmt 9 would add a digit: 1234.4 as "1234.0"
  std::snprintf(buffer.data(), buffer.size(), "%#.*g", digits, value);
  std::string text = buffer.data();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string console_line(const ConsoleValues& values) {
  std::string line = fmt::format("step {}", values.step);
  if (values.total_steps > 0) line += fmt::format("/{}", values.total_steps);
  line += fmt::format(" epoch {} loss {} lr {}", values.epoch, with_digits(values.loss, 4), with_digits(values.lr, 3));
  const bool is_small = values.throughput < 100;
  line += " " + values.throughput_unit + " ";
  line += is_small ? fmt::format("{:.3g}", values.throughput) : fmt::format("{:.0f}", values.throughput);
  line += fmt::format(" data-wait {:.1f}%", 100 * values.data_wait_share);
  if (values.grad_norm) line += fmt::format(" grad-norm {:.3g}", *values.grad_norm);
  if (values.eta_seconds) line += " eta " + clock_text(*values.eta_seconds);
  return line;
}

}  // namespace lockstep::report
