// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::report {

/// The progress line on the console.
struct ConsoleValues {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;  ///< 0 = not known
  std::int64_t epoch = 0;
  double loss = 0.0;
  double lr = 0.0;
  std::vector<std::pair<std::string, double>> group_lrs = {};  ///< rates by group, if they differ; replace `lr`
  double throughput = 0.0;
  std::string throughput_unit = "samples/s";  ///< or "tokens/s"
  double data_wait_share = 0.0;               ///< part of the interval spent waiting for data, in [0, 1]
  std::optional<double> grad_norm = {};
  std::optional<double> memory_mb = {};
  std::optional<double> mfu = {};  ///< model FLOPs utilization, in [0, 1]
  std::optional<double> eta_seconds = {};
};

/// `step 120/2000 epoch 1 loss 0.3214 lr 0.00100 samples/s 10234 data-wait 1.2% grad-norm 0.53 mem 512M mfu
/// 41% eta 0:01:23`
///
/// The order never changes; what is not known is left out.
std::string console_line(const ConsoleValues& values);

}  // namespace lockstep::report
