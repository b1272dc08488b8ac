// SPDX-License-Identifier: BSD-3-Clause
// What the tests against reference/metrics share.
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <string>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

bool has_metrics();

/// Stored tensors: the last dimension of `outputs` is K, unless both have as many dimensions of which the last is N.
metrics::Samples samples_from(const Json& outputs, const Json& targets);
/// Lists of rows; a target is a number or a list.
metrics::Samples samples_from_rows(const Json& outputs, const Json& targets);

/// Fails the test where `actual` is not close; null stands for "undefined", which is NaN here.
void expect_number(const Json& expected, double actual, const Tolerance& tolerance, const std::string& what);

void run_multilabel(const Json& one);
void run_reidentification(const Json& one);

}  // namespace lockstep::testing::reference
