// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {
class BatchNorm;
}

namespace lockstep::parallel {

/// The BatchNorm layers of a model by name, in the order of registration.
/// @throws ConfigError  a layer is one of torch::nn's, of which nobody can change what it does
std::vector<std::pair<std::string, models::BatchNorm*>> batch_norms_of(const models::Model& model);

/// Has the BatchNorm layers of `model` normalize training batches by the statistics of all ranks' samples, as one
/// process with the whole batch would: outputs, input gradients and running statistics. Ranks may bring batches of
/// different sizes, empty ones too; one value per channel and rank is enough. Gradients of scale and shift are this
/// rank's own sums, which the wrapper averages like those of any parameter.
///
/// Each training forward then is a collective (one all_gather of 2 C + 2 numbers), and so is its backward if the
/// layer's input needs a gradient (one all_reduce of 2 C). Evaluation communicates nothing. There is no second
/// derivative. With one rank the layers stay as they are.
/// @param collectives  the ranks that share statistics; a split of them serves the layers, so that reductions which
///                     the reducer has started are not in the way
/// @return             number of BatchNorm layers in the model, each now synchronized
/// @throws ConfigError  a layer is one of torch::nn's, whose type in the model nobody can change; from a forward, on
///                      every rank: one value per channel in all, or inputs that need gradients on some ranks only
/// Collective.
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
std::size_t convert_to_sync_batch_norm(models::Model& model, mpi::Collectives& collectives);

/// Lets the layers use this rank's statistics again. Not collective.
void revert_sync_batch_norm(models::Model& model);

}  // namespace lockstep::parallel
