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
/// @throws ConfigError  a layer is from torch::nn or in the code of a TorchScript archive, and cannot be synchronized
std::vector<std::pair<std::string, models::BatchNorm*>> batch_norms_of(const models::Model& model);

/// Makes the BatchNorm layers of `model` normalize training batches with the statistics over all ranks. Outputs, input
/// gradients and running statistics are those of one process with the whole batch. The batches of ranks can have
/// different sizes, also 0; one value per channel and rank is sufficient. Gradients of scale and shift are sums over
/// this rank, which the wrapper averages like other gradients.
///
/// Each training forward is then collective (one all_gather of 2 C + 2 numbers), and its backward too if the input of
/// the layer requires a gradient (one all_reduce of 2 C numbers). Evaluation does not communicate. Second derivatives
/// are not supported. With one rank, the layers are not changed.
/// @param collectives  of the ranks that share statistics; the layers use a split of it, independent of the reductions
///                     of the reducer
/// @return             number of BatchNorm layers in the model, each now synchronized
/// @throws ConfigError  a layer is from torch::nn and cannot be replaced; from a forward, on every rank: there is only
///                      one value per channel, or inputs require gradients on some ranks only
/// Collective.
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
std::size_t convert_to_sync_batch_norm(models::Model& model, mpi::Collectives& collectives);

/// Checks the last forward, whose errors the next one would report on a GPU, and a captured step that was launched. The
/// host waits for the GPU.
/// @throws ConfigError  as a forward
void check_last_batch(const models::Model& model);

/// Makes the layers use the statistics of this rank again. Not collective.
void revert_sync_batch_norm(models::Model& model);

}  // namespace lockstep::parallel
