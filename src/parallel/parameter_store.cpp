// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/shared_region.hpp>
#include <lockstep/parallel/parameter_store.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep::parallel {

namespace {

constexpr std::size_t kAlignment = 64;

std::shared_ptr<void> private_memory(std::size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return {memory, [](void* p) { std::free(p); }};
}

std::shared_ptr<void> shared_memory(const mpi::Communicator& host, std::size_t bytes) {
  auto region = std::make_shared<mpi::SharedRegion>(host, bytes);
  void* begin = region->bytes().data();
  return {std::move(region), begin};
}

}  // namespace

ParameterStore::ParameterStore(std::vector<NamedParameter> parameters, const std::vector<Bucket>& buckets,
                               const mpi::Communicator& world, bool is_shared)
    : parameters_(std::move(parameters)), host_(is_shared ? world.split_by_host() : world.split(world.rank())) {
  const mpi::Communicator leaders = world.split(host_.is_root() ? 0 : 1);  // one rank of each copy
  for (const Bucket& bucket : buckets) {
    const std::size_t element = size_of(bucket.dtype);
    const std::size_t bytes = static_cast<std::size_t>(bucket.count) * element;
    memory_.push_back(is_shared ? shared_memory(host_, bytes) : private_memory(bytes));
    auto* const begin = static_cast<std::byte*>(memory_.back().get());
    const mpi::Slice slice = mpi::slice_of(static_cast<std::size_t>(bucket.count), host_.rank(), host_.size(), element);

    optim::Block block{.dtype = bucket.dtype, .parameters = begin, .count = bucket.count, .segments = {}};
    block.slice_begin = static_cast<std::int64_t>(slice.begin);
    block.slice_end = static_cast<std::int64_t>(slice.begin + slice.count);
    std::vector<std::size_t> indices;
    for (const Slot& slot : bucket.slots) {
      at::Tensor& tensor = parameters_.at(slot.parameter).tensor;
      block.segments.push_back({.name = parameters_[slot.parameter].name,
                                .shape = tensor.sizes().vec(),
                                .offset = slot.offset,
                                .count = tensor.numel()});
      std::byte* const place = begin + static_cast<std::size_t>(slot.offset) * element;
      const at::Tensor view = view_of(place, tensor, memory_.back());
      if (host_.is_root()) std::memcpy(place, tensor.data_ptr(), tensor.nbytes());
      tensor.set_data(view);
      indices.push_back(slot.parameter);
    }
    if (host_.is_root()) leaders.broadcast(std::span<std::byte>(begin, bytes));
    blocks_.push_back(std::move(block));
    index_.push_back(std::move(indices));
  }
  host_.barrier();
}

ParameterStore::~ParameterStore() = default;

const std::byte* ParameterStore::gradient(std::size_t block, std::size_t segment) const {
  const at::Tensor& parameter = parameters_[index_.at(block).at(segment)].tensor;
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return nullptr;
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.strides() != parameter.strides()) {
    const torch::NoGradGuard no_grad;
    parameter.mutable_grad() = at::empty_like(parameter).copy_(gradient);  // optimizers walk both side by side
  }
  return static_cast<const std::byte*>(parameter.grad().const_data_ptr());
}

void ParameterStore::finish_gradients() {
  if (finish_gradients_) finish_gradients_();
}

void ParameterStore::drop_gradients() {
  for (const NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ParameterStore::write(const std::function<void()>& body) {
  if (!is_shared()) return body();
  host_.barrier();  // nobody still reads what is about to change
  body();
  host_.barrier();  // nobody reads before all have written
}

void ParameterStore::write_whole(const std::function<void()>& body) {
  write([this, &body] {
    if (host_.is_root()) body();
  });
}

double ParameterStore::sum_over_slices(double value) const { return host_.all_reduce(value, mpi::Op::sum); }

double ParameterStore::max_over_slices(double value) const { return host_.all_reduce(value, mpi::Op::max); }

}  // namespace lockstep::parallel
