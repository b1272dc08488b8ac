// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/keys.hpp>

#include <string>

// The choice between trained weights and the average of past ones that section `ema` requests.
namespace lockstep::engine {

/// A key with which `trainer eval`, evaluations of a run, or init.from choose: auto (the average where there is one),
/// trained or average.
/// @param help  what is chosen for
KeySpec weights_key(const std::string& name, const std::string& help);

/// Whether a key of that kind, of the value `wanted`, takes the average that the checkpoint holds.
/// @throws ConfigError  the average is requested, but does not exist
bool takes_average(const checkpoints::Archive& checkpoint, const std::string& wanted, const std::string& cited_as);

/// The types of averaged weights: as they are stored, which is float32 for 16-bit parameters, or rounded to the types
/// of the trained model.
enum class AverageType { stored, of_trained };

/// The checkpoint with one model alone: the averaged one in the trained one's place, or that without the average.
checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average,
                                AverageType type = AverageType::stored);

}  // namespace lockstep::engine
