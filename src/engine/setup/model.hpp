// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/setup/precision.hpp"
#include "engine/setup/strategy_table.hpp"
#include "optim/averages/model_average.hpp"

// The model of a run and its wrapper, before its first step.
namespace lockstep::engine {

/// The options of the wrapper from sections `ddp`, `comm` and `model`, the precision and the strategy.
/// @param lanes  0 = off
parallel::DdpOptions wrapper_options(const Sections& sections, const Precision& precision, std::int64_t lanes,
                                     const StrategyRow& row, const StrategySettings& settings,
                                     const mpi::Collectives& collectives,
                                     const std::vector<parallel::CommHookRow>& comm_hooks);

bool has_batch_norm(const models::Model& model);
std::vector<optim::ModelAverage::NamedBuffer> buffers_in(const models::Model& model);

}  // namespace lockstep::engine
