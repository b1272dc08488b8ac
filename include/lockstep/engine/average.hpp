// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/key_spec.hpp>
#include <lockstep/engine/strategy.hpp>

#include <functional>
#include <string>

// The average of past weights that section `ema` asks for, in the place of the trained ones.
namespace lockstep::engine {

/// Runs `body` with averaged weights and buffers in the model, where the strategy has an average that has begun; then,
/// and after an exception too, the trained ones are back with all their bits. Without an average it only runs `body`.
/// Collective. After an exception each rank puts its own parts back, and waits for nobody: where parameters are shared
/// the others' are back once all ranks have come out of here, and where they are sharded after the next
/// ParameterStore::write.
void with_average(Strategy& strategy, const std::function<void()>& body);

/// A key with which `trainer eval`, evaluations of a run, or init.from choose: auto (the average where there is one),
/// trained or average.
/// @param help  what is chosen for
KeySpec weights_key(const std::string& name, const std::string& help);

/// Whether a key of that kind, of the value `wanted`, takes the average that the checkpoint holds.
/// @throws ConfigError  it wants one, and there is none
bool takes_average(const checkpoints::Archive& checkpoint, const std::string& wanted, const std::string& cited_as);

/// The checkpoint with one model alone: the averaged one in the trained one's place, or that without the average.
checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average);

}  // namespace lockstep::engine
