// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/replicas.hpp"

#include <lockstep/core/error.hpp>

#include <string>

#include "checkpoints/store/checkpoint_index.hpp"
#include "parallel/sync/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kDigits = 32;  // of array_digest

/// One after the other, of every parameter.
std::string digests_of(const parallel::ParameterStore& store) {
  std::string digests;
  for (std::size_t i = 0; i < store.size(); ++i) {
    const at::Tensor values = store.parameter(i).tensor.detach().cpu().contiguous();
    digests += checkpoints::array_digest(parallel::bytes_of(values));
  }
  return digests;
}

}  // namespace

void require_equal_replicas(const mpi::Communicator& world, const parallel::ParameterStore& store) {
  const bool is_compared = world.size() > 1 && !store.is_shared() && store.shards() == nullptr;
  if (world.agree(!is_compared)) return;
  const std::vector<std::string> all = world.all_gather(digests_of(store));
  for (std::size_t i = 0; i < store.size(); ++i) {
    std::string ranks;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const bool is_equal = all[rank].compare(i * kDigits, kDigits, all[0], i * kDigits, kDigits) == 0;
      if (!is_equal) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (ranks.empty()) continue;
    throw_agreed(ExitCode::communication,
                 "parameter '" + store.parameter(i).name + "' differs from rank 0's on rank " + ranks +
                     ": the ranks no longer train the same model. Nothing is saved; resume from the last " +
                     "checkpoint, and check the memory of those hosts if it happens again");
  }
}

}  // namespace lockstep::engine
