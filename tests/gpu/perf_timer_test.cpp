// SPDX-License-Identifier: BSD-3-Clause
// Sections whose work a GPU does: the host is through with them before they are done.

#include "engine/steps/perf_timer.hpp"

#include <torch/types.h>

#include <cmath>

#include "fake_functions.hpp"
#include "gpu_test.hpp"

namespace lockstep::engine {
namespace perf_timer_test {

using PerfTimerGpuTest = GpuTest;

TEST_F(PerfTimerGpuTest, DeviceTimesAreThoseOfTheWork) {
  const at::Device device = device_->torch();
  PerfStats stats(make_device_clock(device));
  const std::int64_t size = fake_gpu::is_here() ? 256 : 2048;
  const at::Tensor matrix = at::rand({size, size}, at::TensorOptions().device(device));
  at::mm(matrix, matrix);  // the first use of the library takes its own time
  {
    const PerfScope total("train_step_total", &stats);
    {
      const PerfScope forward("forward", &stats);
      for (int i = 0; i < 20; ++i) at::mm(matrix, matrix);
    }
    const PerfScope nothing("meters_update", &stats);
  }
  stats.report();  // waits for the device
  EXPECT_EQ(stats.pending(), 0);
  const auto ms = [&](const char* section) { return stats.sections().at(section).device_ms.sum(); };
  EXPECT_EQ(stats.sections().at("forward").device_ms.count(), 1);
  // 20 products of 2 * size^3 operations at fewer than 10^15 a second.
  EXPECT_GT(ms("forward"), 20 * 2 * std::pow(static_cast<double>(size), 3) / 1e15 * 1000);
  EXPECT_LT(ms("meters_update"), ms("forward"));
  EXPECT_GE(ms("train_step_total") * 1.001, ms("forward") + ms("meters_update"));
}

}  // namespace perf_timer_test
}  // namespace lockstep::engine
