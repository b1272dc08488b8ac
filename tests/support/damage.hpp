// SPDX-License-Identifier: BSD-3-Clause
// Random damage of the bytes of good files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace lockstep::testing {

using Random = std::mt19937_64;

/// A number in [0, end); 0 if end is 0.
inline std::size_t below(Random& random, std::size_t end) { return end == 0 ? 0 : random() % end; }

/// Flips, overwrites, cuts, appends, repeats or removes bytes, `fewest` to `fewest` + 3 times. Half of the places are
/// among the first 128 bytes, where formats have their headers.
inline std::string damaged(std::string bytes, Random& random, std::size_t fewest = 1) {
  constexpr std::size_t kHeader = 128;
  for (std::size_t rounds = fewest + below(random, 4); rounds > 0; --rounds) {
    const bool is_in_header = below(random, 2) == 0;
    const std::size_t place = below(random, is_in_header ? std::min(bytes.size(), kHeader) : bytes.size());
    switch (below(random, 7)) {
      case 0:
        if (!bytes.empty()) bytes[place] = static_cast<char>(bytes[place] ^ 1 << below(random, 8));
        break;
      case 1:
        if (!bytes.empty()) bytes[place] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(place);
        break;
      case 3:
        for (std::size_t i = 1 + below(random, 64); i > 0; --i) bytes += static_cast<char>(random());
        break;
      case 4:
        bytes.insert(place, bytes.substr(below(random, bytes.size()), below(random, 100)));
        break;
      case 5:
        bytes.erase(place, below(random, 100));
        break;
      default:  // extreme numbers
        for (std::size_t i = place; i < std::min(bytes.size(), place + 8); ++i) {
          bytes[i] = below(random, 2) == 0 ? '\xFF' : '\0';
        }
    }
  }
  return bytes;
}

}  // namespace lockstep::testing
