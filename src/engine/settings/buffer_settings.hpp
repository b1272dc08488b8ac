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

  static KeySpecs keys();
  static BufferSettings from(const Section& buffer);
};

}  // namespace lockstep::engine
