// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/tensor_collectives.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <utility>

#include "mpi/shared/device_collectives.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, kAllDTypes.size()> kRows = {{
    {at::kFloat, DType::float32},
    {at::kDouble, DType::float64},
    {at::kHalf, DType::float16},
    {at::kBFloat16, DType::bfloat16},
    {at::kChar, DType::int8},
    {at::kShort, DType::int16},
    {at::kInt, DType::int32},
    {at::kLong, DType::int64},
    {at::kByte, DType::uint8},
    {at::kBool, DType::boolean},
    {at::kComplexFloat, DType::complex64},
    {at::kComplexDouble, DType::complex128},
}};

/// Calls `change` with the tensor, or with a row-major copy whose values then become the tensor's.
template <class Change>
void change_flat(const at::Tensor& tensor, const Change& change) {
  const torch::NoGradGuard no_grad;
  const at::Tensor flat = is_flat(tensor) ? tensor : tensor.contiguous();
  change(flat);
  if (!flat.is_same(tensor)) tensor.copy_(flat);
}

std::int64_t begin_of(std::span<const std::int64_t> borders, int rank) {
  return borders[static_cast<std::size_t>(rank)];
}

/// The slice of a rank.
at::Tensor part_of(const at::Tensor& all, std::span<const std::int64_t> borders, int rank) {
  return all.narrow(0, begin_of(borders, rank), begin_of(borders, rank + 1) - begin_of(borders, rank));
}

/// Puts this rank's slice at its place.
void place(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders, int rank) {
  const at::Tensor part = part_of(all, borders, rank);
  if (part.numel() > 0 && part.const_data_ptr() != mine.const_data_ptr()) part.copy_(mine);
}

/// Slices have the largest size.
void gather_padded(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders,
                   std::int64_t longest, mpi::Collectives& collectives) {
  const at::Tensor padded = at::empty({longest}, mine.options());
  padded.narrow(0, 0, mine.numel()).copy_(mine);
  const at::Tensor slices = at::empty({collectives.world_size(), longest}, mine.options());
  collectives.wait(start_all_gather(padded, slices, collectives));
  std::vector<at::Tensor> sources, targets;
  for (int rank = 0; rank < collectives.world_size(); ++rank) {
    targets.push_back(part_of(all, borders, rank));
    sources.push_back(slices[rank].narrow(0, 0, targets.back().numel()));
  }
  at::_foreach_copy_(targets, sources);
}

}  // namespace

DType dtype_of(const at::Tensor& tensor, const std::string& what) { return dtype_of(tensor.scalar_type(), what); }

DType dtype_of(at::ScalarType type, const std::string& what) {
  for (const auto& [scalar_type, dtype] : kRows) {
    if (scalar_type == type) return dtype;
  }
  throw ConfigError(what + " has the unsupported type " + c10::toString(type));
}

at::ScalarType scalar_type_of(DType dtype) {
  return std::find_if(kRows.begin(), kRows.end(), [dtype](const auto& row) { return row.second == dtype; })->first;
}

at::Tensor view_of(std::byte* data, const at::Tensor& like, const std::shared_ptr<void>& owner,
                   std::optional<at::ScalarType> type) {
  const at::TensorOptions options = like.options().dtype(type.value_or(like.scalar_type())).requires_grad(false);
  const auto keep = [owner](void*) {};
  const at::Device device = like.device();  // said, since CUDA does not know whose a place without elements is
  if (!is_flat(like)) return at::from_blob(data, like.sizes(), keep, options, device);
  return at::from_blob(data, like.sizes(), like.strides(), keep, options, device);
}

at::Tensor vector_over(void* data, std::int64_t count, at::ScalarType type, at::Device device,
                       const std::shared_ptr<void>& owner) {
  const at::TensorOptions options = at::TensorOptions().dtype(type).device(device);
  return at::from_blob(
      data, {count}, [owner](void*) {}, options, device);
}

bool is_flat(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void broadcast(const at::Tensor& tensor, const mpi::Communicator& world, int root) {
  change_flat(tensor, [&](const at::Tensor& flat) {
    const at::Tensor on_host = flat.cpu();
    world.broadcast(bytes_of(on_host), root);
    if (!on_host.is_same(flat)) flat.copy_(on_host);
  });
}

void broadcast(const at::Tensor& tensor, mpi::Collectives& collectives, int root) {
  change_flat(tensor, [&](const at::Tensor& flat) { collectives.broadcast(bytes_of(flat), root); });
}

mpi::Ticket start_all_gather(const at::Tensor& mine, const at::Tensor& all, mpi::Collectives& collectives) {
  if (collectives.world_size() > 1) return collectives.start_all_gather(bytes_of(mine), bytes_of(all));
  const torch::NoGradGuard no_grad;
  all.copy_(mine);
  return {};
}

bool are_even(std::span<const std::int64_t> borders) {
  for (std::size_t rank = 1; rank < borders.size(); ++rank) {
    if (borders[rank] - borders[rank - 1] != borders[1] - borders[0]) return false;
  }
  return true;
}

mpi::Ticket start_all_gather(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders,
                             mpi::Collectives& collectives) {
  if (are_even(borders)) return start_all_gather(mine, all, collectives);
  const torch::NoGradGuard no_grad;
  const std::int64_t begin = begin_of(borders, collectives.rank());
  const std::int64_t end = begin_of(borders, collectives.rank() + 1);
  all.narrow(0, 0, begin).zero_();
  all.narrow(0, end, all.numel() - end).zero_();
  place(mine, all, borders, collectives.rank());
  const bool is_in_words = all.nbytes() % sizeof(std::int32_t) == 0;
  const std::size_t count = is_in_words ? all.nbytes() / sizeof(std::int32_t) : all.nbytes();
  return collectives.start_all_reduce(all.mutable_data_ptr(), count, is_in_words ? DType::int32 : DType::uint8,
                                      mpi::ReduceOp::sum);
}

void all_gather(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders,
                mpi::Collectives& collectives) {
  if (are_even(borders)) return collectives.wait(start_all_gather(mine, all, collectives));
  const torch::NoGradGuard no_grad;
  const int ranks = collectives.world_size();
  if (mpi::has_device_buckets(collectives)) {
    std::int64_t longest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      longest = std::max(longest, begin_of(borders, rank + 1) - begin_of(borders, rank));
    }
    // A sum moves each element about twice; padded slices are cheaper where their sizes are similar.
    if (longest * ranks <= 2 * all.numel()) return gather_padded(mine, all, borders, longest, collectives);
    return collectives.wait(start_all_gather(mine, all, borders, collectives));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor part = part_of(all, borders, rank);
    if (part.numel() == 0) continue;
    if (rank == collectives.rank()) place(mine, all, borders, rank);
    collectives.broadcast(bytes_of(part), rank);
  }
}

mpi::Ticket start_reduce_scatter(const at::Tensor& values, const at::Tensor& slice, mpi::Collectives& collectives,
                                 mpi::ReduceOp op) {
  if (collectives.world_size() > 1) {
    return collectives.start_reduce_scatter(values.mutable_data_ptr(), static_cast<std::size_t>(values.numel()),
                                            dtype_of(values, "a tensor"), op, slice.mutable_data_ptr());
  }
  const torch::NoGradGuard no_grad;
  slice.copy_(values);
  return {};
}

mpi::Ticket start_all_reduce(const at::Tensor& values, mpi::Collectives& collectives, mpi::ReduceOp op) {
  return collectives.start_all_reduce(values.mutable_data_ptr(), static_cast<std::size_t>(values.numel()),
                                      dtype_of(values, "a tensor"), op);
}

void all_reduce(const at::Tensor& tensor, mpi::Collectives& collectives, mpi::ReduceOp op) {
  change_flat(tensor, [&](const at::Tensor& flat) {
    collectives.all_reduce(flat.mutable_data_ptr(), static_cast<std::size_t>(flat.numel()), dtype_of(flat, "a tensor"),
                           op);
  });
}

}  // namespace lockstep::parallel
