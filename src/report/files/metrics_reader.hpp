// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::report {

/// The values that a metrics file holds under `key`, with their steps, in the order of its lines. Lines without the key
/// and a torn last line are skipped; "NaN" and the infinities come back as such.
/// @throws ConfigError  the file cannot be read
std::vector<std::pair<std::int64_t, double>> read_series(const std::string& path, const std::string& key);

}  // namespace lockstep::report
