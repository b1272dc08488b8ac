// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/replicas.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "batch/late_values.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kDigits = 32;     // those of array_digest
constexpr std::size_t kSumsBytes = 16;  // the size of integer_sums
constexpr std::size_t kWordBytes = sizeof(std::int32_t);

/// One after the other, of every parameter.
std::string digests_of(const parallel::ParameterStore& store) {
  std::string digests;
  for (std::size_t i = 0; i < store.size(); ++i) {
    const at::Tensor values = store.parameter(i).tensor.detach().cpu().contiguous();
    digests += checkpoints::array_digest(parallel::bytes_of(values));
  }
  return digests;
}

/// The sum of v[i] * (2 i + 1).
at::Tensor weighted_sum(const at::Tensor& values) {
  return values.mul(at::arange(1, 2 * values.numel(), 2, values.options())).sum();
}

/// The columns of a table of words that has about as many rows; a power of two.
std::int64_t columns_of(std::int64_t words) {
  return std::int64_t{1} << (std::bit_width(static_cast<std::uint64_t>(words)) / 2);
}

/// One after the other, as bytes. Waits for the device.
std::string bytes_on_host(const std::vector<at::Tensor>& sums) {
  batch::LateValues copy;
  copy.queue(at::stack(sums));
  const at::Tensor values = copy.take();
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

/// One for every block, which ranks compare at each save.
std::string sums_of_blocks(const parallel::ParameterStore& store) {
  std::vector<at::Tensor> sums;
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    sums.push_back(integer_sums(store.bytes_of_block(b), store.device()));
  }
  return bytes_on_host(sums);
}

/// One for every parameter, to name one that differs. A parameter ends within the padding of its block, if in half a
/// word.
std::string sums_of_parameters(const parallel::ParameterStore& store) {
  std::vector<at::Tensor> sums(store.size());
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    const optim::FlatBlock& block = store.blocks()[b];
    const std::size_t element = size_of(block.dtype);
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const std::size_t begin = static_cast<std::size_t>(block.segments[s].offset) * element;
      const std::size_t bytes = static_cast<std::size_t>(block.segments[s].count) * element;
      const std::size_t words = (bytes + kWordBytes - 1) / kWordBytes;
      sums[store.index_of(b, s)] =
          integer_sums(store.bytes_of_block(b).subspan(begin, words * kWordBytes), store.device());
    }
  }
  return bytes_on_host(sums);
}

bool are_equal(const std::vector<std::string>& all) {
  return std::all_of(all.begin(), all.end(), [&all](const std::string& each) { return each == all.front(); });
}

/// @param all    of each rank, one after the other for every parameter
/// @param bytes  for each parameter
/// @throws CommError  the first parameter that differs
void require_equal(const std::vector<std::string>& all, std::size_t bytes, const parallel::ParameterStore& store) {
  for (std::size_t i = 0; i < store.size(); ++i) {
    std::string ranks;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const bool is_equal = all[rank].compare(i * bytes, bytes, all[0], i * bytes, bytes) == 0;
      if (!is_equal) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (ranks.empty()) continue;
    throw_agreed(ExitCode::communication,
                 "parameter '" + store.parameter(i).name + "' differs from rank 0's on rank " + ranks +
                     ": the ranks no longer train the same model. Nothing is saved; resume from the last " +
                     "checkpoint, and check the memory of those hosts if it happens again");
  }
}

}  // namespace

at::Tensor integer_sums(std::span<std::byte> memory, at::Device device) {
  const torch::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kInt).device(device);
  const auto words = static_cast<std::int64_t>(memory.size() / kWordBytes);
  if (words == 0) return at::zeros({2}, options.dtype(at::kLong));
  const at::Tensor all = at::from_blob(
      memory.data(), {words}, [](void*) {}, options, device);
  const std::int64_t columns = columns_of(words);
  const std::int64_t rows = words / columns;
  const at::Tensor table = all.narrow(0, 0, rows * columns).view({rows, columns});
  const at::Tensor last_row = all.narrow(0, rows * columns, words - rows * columns);
  const at::Tensor of_columns = table.sum(at::IntArrayRef{0}, /*keepdim=*/false, at::kLong);
  of_columns.narrow(0, 0, last_row.numel()).add_(last_row);
  const at::Tensor of_rows =
      at::cat({table.sum(at::IntArrayRef{1}, /*keepdim=*/false, at::kLong), last_row.sum(at::kLong).view({1})});
  return at::stack({weighted_sum(of_rows), weighted_sum(of_columns)});
}

void require_equal_replicas(const mpi::Communicator& world, const parallel::ParameterStore& store) {
  const bool is_compared = world.size() > 1 && !store.is_shared() && store.shards() == nullptr;
  if (world.agree(!is_compared)) return;
  if (store.device().is_cpu()) return require_equal(world.all_gather(digests_of(store)), kDigits, store);
  if (are_equal(world.all_gather(sums_of_blocks(store)))) return;
  require_equal(world.all_gather(sums_of_parameters(store)), kSumsBytes, store);
}

}  // namespace lockstep::engine
