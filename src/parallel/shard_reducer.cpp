// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/shard_reducer.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "accumulator_hooks.hpp"

namespace lockstep::parallel {

class ShardReducer::Impl : public AccumulatorListener {
 public:
  Impl(std::vector<NamedParameter> parameters, std::vector<Unit> units, mpi::Collectives& collectives,
       std::function<void(std::size_t)> on_reduced)
      : parameters_(std::move(parameters)),
        units_(std::move(units)),
        collectives_(collectives),
        on_reduced_(std::move(on_reduced)),
        places_(parameters_.size()),
        has_arrived_(parameters_.size()),
        is_used_(parameters_.size()),
        awaited_(units_.size()),
        contributions_(units_.size()),
        on_host_(units_.size()) {
    std::size_t most = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_[u];
      for (const Slot& slot : unit.slots) places_[slot.parameter] = {u, slot.offset};
      const at::Tensor& any = parameters_[unit.slots.front().parameter].tensor;
      slices_.push_back(at::zeros({unit.slice}, any.options().requires_grad(false)));
      most = std::max(most, static_cast<std::size_t>(unit.count(collectives.world_size())) * size_of(unit.dtype));
    }
    // Where nothing waits for a reduction, the next unit comes together beside it.
    stagings_.resize(collectives_.has_device_buckets() ? 2 : 1);
    for (Staging& staging : stagings_) staging.memory = allocate(most);
    begin_round();
    hooks_ = std::make_unique<AccumulatorHooks>(parameters_, *this);
  }

  void prepare() {
    if (is_open_) flush();
    is_open_ = true;
  }

  void finish() {
    if (!is_open_) return;
    flush();
    settle_all();
    is_open_ = false;
    collectives_.all_reduce(is_used_.data(), is_used_.size(), DType::uint8, mpi::ReduceOp::max);
    is_sliced_ = true;
  }

  bool is_sliced() const { return is_sliced_; }
  bool has_gradient(std::size_t parameter) const { return is_used_[parameter] != 0; }

  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit) {
    if (begin == end) return;
    const auto [u, offset] = places_[parameter];
    if (!on_host_[u].defined()) on_host_[u] = slices_[u].cpu();
    const std::size_t element = size_of(units_[u].dtype);
    const std::int64_t at = offset + begin - units_[u].slice * collectives_.rank();
    visit(begin, end - begin, bytes_of(on_host_[u]).data() + static_cast<std::size_t>(at) * element);
  }

  at::Tensor part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const {
    const auto [u, offset] = places_[parameter];
    if (begin == end) return slices_[u].narrow(0, 0, 0);
    return slices_[u].narrow(0, offset + begin - units_[u].slice * collectives_.rank(), end - begin);
  }

  void release() {
    is_sliced_ = false;
    std::fill(is_used_.begin(), is_used_.end(), std::uint8_t{0});
    std::fill(contributions_.begin(), contributions_.end(), 0);
    std::fill(on_host_.begin(), on_host_.end(), at::Tensor());
  }

  void reset() {
    settle_all();
    is_open_ = false;
    for (const NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
    begin_round();
    release();
  }

  void on_accumulated(std::size_t parameter, bool /*has_gradient*/) override {
    // A second backward of the same step brings its gradients in a round of their own.
    if (has_arrived_[parameter] != 0 && is_reduced(places_[parameter].unit)) flush();
    if (std::exchange(has_arrived_[parameter], char{1}) != 0) return;
    --awaited_[places_[parameter].unit];
    while (next_ > 0 && awaited_[next_ - 1] == 0) reduce(--next_);
  }

 private:
  struct Place {
    std::size_t unit = 0;
    std::int64_t offset = 0;
  };

  /// Memory in which a unit's gradients come together, and their reduction, which may be under way.
  struct Staging {
    mpi::BucketMemory memory;
    bool is_busy = false;
    mpi::Ticket ticket = {};
    std::size_t unit = 0;
    at::Tensor more = {};  // of a unit whose slice has some already: the result, which is to be added
  };

  mpi::BucketMemory allocate(std::size_t bytes) const {
    const at::Device device = slices_.front().device();
    if (device.is_cpu() || collectives_.has_device_buckets()) return collectives_.allocate_bucket(bytes);
    const auto memory = std::make_shared<at::Tensor>(
        at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device)));
    return {.bytes = bytes_of(*memory), .owner = memory};
  }

  void settle(Staging& staging) {
    if (!std::exchange(staging.is_busy, false)) return;
    collectives_.wait(staging.ticket);
    if (staging.more.defined()) slices_[staging.unit].add_(std::exchange(staging.more, at::Tensor()));
  }

  void settle_all() {
    for (std::size_t i = 0; i < stagings_.size(); ++i) settle(stagings_[(turn_ + i) % stagings_.size()]);
  }

  bool is_reduced(std::size_t unit) const { return unit >= next_; }

  void begin_round() {
    next_ = units_.size();
    std::fill(has_arrived_.begin(), has_arrived_.end(), char{0});
    for (std::size_t u = 0; u < units_.size(); ++u) awaited_[u] = units_[u].slots.size();
  }

  /// Reduces what the round has not brought, as far as it goes.
  void flush() {
    while (next_ > 0) reduce(--next_);
    begin_round();
  }

  void reduce(std::size_t u) {
    const torch::NoGradGuard no_grad;
    Staging& staging = stagings_[turn_++ % stagings_.size()];
    settle(staging);
    bring_together(u, staging.memory);
    const bool is_first = contributions_[u]++ == 0;
    if (!is_first) staging.more = at::empty_like(slices_[u]);
    const at::Tensor all = at::from_blob(
        staging.memory.bytes.data(), {units_[u].count(collectives_.world_size())}, [](void*) {}, slices_[u].options(),
        slices_[u].device());
    staging.unit = u;
    staging.ticket = start_average_scatter(all, is_first ? slices_[u] : staging.more, collectives_);
    staging.is_busy = true;
    if (stagings_.size() == 1) settle(staging);
    on_host_[u].reset();
    on_reduced_(u);
  }

  /// Moves the gradients of a unit to where they are reduced.
  void bring_together(std::size_t u, const mpi::BucketMemory& memory) {
    const Unit& unit = units_[u];
    for (const Slot& slot : unit.slots) {
      const at::Tensor& parameter = parameters_[slot.parameter].tensor;
      at::Tensor& gradient = parameter.mutable_grad();
      const at::Tensor view = view_of(memory.bytes.data() + static_cast<std::size_t>(slot.offset) * size_of(unit.dtype),
                                      parameter, memory.owner);
      if (gradient.defined()) {
        view.copy_(gradient);
        is_used_[slot.parameter] = 1;
      } else {
        view.zero_();
      }
      gradient.reset();
    }
  }

  std::vector<NamedParameter> parameters_;
  std::vector<Unit> units_;
  mpi::Collectives& collectives_;
  std::function<void(std::size_t)> on_reduced_;
  std::vector<Place> places_;       // by parameter
  std::vector<at::Tensor> slices_;  // by unit: averages of this step, added up
  std::vector<Staging> stagings_;   // take turns
  std::size_t turn_ = 0;
  std::vector<char> has_arrived_;            // by parameter, in this round
  std::vector<std::uint8_t> is_used_;        // by parameter, in this step; after finish on any rank
  std::vector<std::size_t> awaited_;         // by unit: parameters that have not arrived in this round
  std::vector<std::int64_t> contributions_;  // by unit, in this step
  std::vector<at::Tensor> on_host_;          // by unit: slices_ where the host reads them, once it does
  std::size_t next_ = 0;                     // units from here on are reduced
  bool is_open_ = false;
  bool is_sliced_ = false;
  std::unique_ptr<AccumulatorHooks> hooks_;
};

ShardReducer::ShardReducer(std::vector<NamedParameter> parameters, std::vector<Unit> units,
                           mpi::Collectives& collectives, std::function<void(std::size_t)> on_reduced)
    : impl_(std::make_unique<Impl>(std::move(parameters), std::move(units), collectives, std::move(on_reduced))) {}

ShardReducer::~ShardReducer() = default;

void ShardReducer::prepare() { impl_->prepare(); }

void ShardReducer::finish() { impl_->finish(); }

bool ShardReducer::is_sliced() const noexcept { return impl_->is_sliced(); }

bool ShardReducer::has_gradient(std::size_t parameter) const { return impl_->has_gradient(parameter); }

void ShardReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit,
                         bool /*keeps*/) {
  impl_->visit(parameter, begin, end, visit);
}

at::Tensor ShardReducer::part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const {
  return impl_->part_of(parameter, begin, end);
}

void ShardReducer::release() noexcept { impl_->release(); }

void ShardReducer::reset() { impl_->reset(); }

}  // namespace lockstep::parallel
