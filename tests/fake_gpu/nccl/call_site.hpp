// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>

namespace lockstep::fake_gpu::nccl {

/// The functions that led to a call. Work runs later and in another thread, where nothing shows who queued it.
class CallSite {
 public:
  static CallSite here();
  /// Writes one function a line.
  void print(int descriptor) const;

 private:
  static constexpr int kMaxFrames = 12;
  std::array<void*, kMaxFrames> frames_{};
  int count_ = 0;
};

}  // namespace lockstep::fake_gpu::nccl
