// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/Parallel.h>

namespace lockstep::embed {

/// The threads of LibTorch are those of the session inside its calls, and those of the program outside.
class OwnThreads {
 public:
  explicit OwnThreads(int threads) : before_(at::get_num_threads()) {
    if (before_ != threads) at::set_num_threads(threads);
  }
  ~OwnThreads() {
    if (at::get_num_threads() != before_) at::set_num_threads(before_);
  }
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::embed
