// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

namespace lockstep::data {

/// @throws ConfigError  the samples of the data set come from a program that calls Lockstep as a library
void require_readable(const Dataset& dataset);

}  // namespace lockstep::data
