// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mutex>

namespace lockstep::fake_gpu {

/// The lock of all streams, events, graphs, memory and counters. A function that takes a `Lock&` may let go of it,
/// while it waits or runs work.
using Lock = std::unique_lock<std::mutex>;

inline Lock hold() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: workers run until the process ends
  return Lock(mutex);
}

}  // namespace lockstep::fake_gpu
