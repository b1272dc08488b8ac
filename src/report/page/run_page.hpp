// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::report {

/// A page on a run: outcome, curves, errors of rollouts, fields, classes and samples of the last evaluation, numbers,
/// where a step's time went, samples that were replaced, configuration and environment. It needs no other file and no
/// network, and has a dark look where the reader prefers one.
/// @param folder  of the run
/// @throws ConfigError  the folder does not exist, or no metrics.jsonl in it
/// @throws DataError    metrics.jsonl is damaged or holds no metrics; ddp.json, tables.json, pictures.json or
/// units.json is
///                      damaged
std::string run_page(const std::string& folder);

/// A page with the curves of runs laid over each other, their last numbers, and the settings in which they differ.
/// @param folders  of two runs or more
/// @throws  as run_page
std::string comparison_page(const std::vector<std::string>& folders);

}  // namespace lockstep::report
