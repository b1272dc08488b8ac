// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <thread>
#include <vector>

namespace lockstep {

/// Calls work(t) with t = 0, 1, ..., threads - 1, each in a thread of its own but for 0, which is the calling one, and
/// waits for all of them. Of several exceptions, that of the lowest t is thrown.
template <class Work>
void in_threads(int threads, const Work& work) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  const auto try_work = [&](int t) {
    try {
      work(t);
    } catch (...) {
      failures[static_cast<std::size_t>(t)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(try_work, t);
    try_work(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace lockstep
