// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <string>

#include "setup/strategy.hpp"

// What gradients have left behind on their way between ranks: the state of the communication hook, and the layout of
// the buckets.
namespace lockstep::engine {

/// Groups /comm/hook and /comm/buckets of `archive`, on ranks that write. Collective.
void capture_comm(checkpoints::Archive& archive, Strategy& strategy, bool is_writer);

/// Puts the hook and the buckets where they were. What other ranks kept to themselves is lost when their number has
/// changed, which the log says. Collective; before the first step.
/// @throws CheckpointError  not a state of this hook; on every rank
void restore_comm(Strategy& strategy, const checkpoints::Archive& archive);

/// The class of exactness that the run loses for its hook or its buckets, and why: "statistical, because ..."; empty
/// when it loses nothing.
std::string comm_difference(Strategy& strategy, const checkpoints::Archive& archive);

}  // namespace lockstep::engine
