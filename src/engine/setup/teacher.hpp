// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <string>

// The teacher of loss.name=distill: a second model with trained weights, which is not trained.
namespace lockstep::data {
class Dataset;
}
namespace lockstep::parallel {
class DistributedDataParallel;
}

namespace lockstep::engine {

struct Registry;
struct Resources;

/// Section `distill`.
KeySpecs distill_keys();

/// Whether loss.name is distill.
/// @throws ConfigError  it is, but distill.from names no teacher; or it is not, but distill.from names one
bool has_teacher(const Sections& sections);

/// Builds the model that distill.model names with the weights of distill.from, in evaluation mode and without
/// gradients, and gives it to the loss of the model. Every rank has the whole teacher, with the values of rank 0. It is
/// not part of the model and of its checkpoints. Without loss.name=distill: nothing. Collective.
/// @param train  the training data
/// @return  digest of the teacher's weights; empty without a teacher
/// @throws ConfigError      see has_teacher; the teacher was trained for other classes; it does not accept the samples
/// @throws CheckpointError  the weights cannot be read or do not fit; on every rank, as all errors
std::string attach_teacher(const Resources& resources, parallel::DistributedDataParallel& wrapper,
                           const Sections& sections, const Registry& registry, const data::Dataset& train);

}  // namespace lockstep::engine
