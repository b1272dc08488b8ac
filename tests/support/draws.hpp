// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::testing {

/// Draws of these samples, in this order.
inline std::vector<batch::Draw> draws_of(const std::vector<std::int64_t>& indices) {
  std::vector<batch::Draw> draws;
  for (const std::int64_t index : indices) draws.push_back({.index = index});
  return draws;
}

}  // namespace lockstep::testing
