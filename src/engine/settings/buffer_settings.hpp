// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// Section `buffer`: the samples that a program pushes and that steps are drawn from.
struct BufferSettings {
  std::int64_t capacity = 4096;   ///< samples of one buffer; >= 1
  bool is_reservoir = false;      ///< a uniform choice among all pushed samples is kept, not the newest
  Cited<std::int64_t> min = {1};  ///< samples of all buffers together before the first step; >= 1

  bool has_statistics = false;    ///< the model normalizes with statistics of the samples
  std::int64_t frozen_after = 0;  ///< samples after which the statistics stay as they are; 0 = never

  bool routes_by_host = true;              ///< producers send to ranks of their own host
  std::int64_t window_bytes = 64'000'000;  ///< limit of a producer's samples under way; > 0
  bool drops_when_full = false;            ///< a producer drops samples that its window has no room for

  static KeySpecs keys();
  /// @throws ConfigError  `statistics` is neither none, running nor first:N
  static BufferSettings from(const Section& buffer);
};

}  // namespace lockstep::engine
