// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>

#include <string>

namespace lockstep::data {

/// @throws ConfigError  the samples of the data set come from a program that calls Lockstep as a library
void require_readable(const Dataset& dataset);

/// The value of data.kind for samples of a program; that of a regression if there is none.
const std::string& name_of_kind(TaskKind kind);

}  // namespace lockstep::data
