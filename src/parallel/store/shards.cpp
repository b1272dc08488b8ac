// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/shards.hpp"

#include <torch/types.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

ShardRanks::ShardRanks(mpi::Collectives& all, const mpi::Topology& topology) : all_(&all) {
  if (topology.host_count == 1) return;
  inside_ = all.split(topology.host_index);
  across_ = all.split(topology.local_rank);
}

void ShardRanks::sum(std::span<double> values) const {
  if (!is_in_first_copy()) std::fill(values.begin(), values.end(), 0.0);
  all_->all_reduce(values.data(), values.size(), DType::float64, mpi::ReduceOp::sum);
}

void ShardRanks::sum(const at::Tensor& values) const {
  if (!is_in_first_copy()) values.zero_();
  all_reduce(values, *all_, mpi::ReduceOp::sum);
}

/// Does work one piece after the other on a thread of its own.
class Shards::Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  std::future<void> start(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    changed_.notify_one();
    return done;
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::packaged_task<void()> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> waiting_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

Shards::Shards(std::vector<NamedParameter> parameters, std::vector<Unit> units, mpi::Collectives& collectives,
               const ShardsOptions& options)
    : parameters_(std::move(parameters)),
      units_(std::move(units)),
      options_(options),
      collectives_(&collectives),
      states_(units_.size(), UnitState::gathered),
      arrivals_(units_.size()),
      tickets_(units_.size()),
      coming_(units_.size()) {
  const torch::NoGradGuard no_grad;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    const at::TensorOptions like = parameters_[unit.slots.front().parameter].tensor.options().requires_grad(false);
    const at::Tensor whole = at::zeros({unit.count()}, like);
    for (const Slot& slot : unit.slots) {
      at::Tensor& parameter = parameters_[slot.parameter].tensor;
      const at::Tensor view = whole.as_strided(parameter.sizes(), parameter.strides(), slot.offset);
      view.copy_(parameter);
      parameter.set_data(view);
    }
    const at::Tensor own = whole.narrow(0, unit.begin(collectives.rank()), unit.slice(collectives.rank()));
    slices_.push_back(options_.frees ? own.clone() : own);
    wholes_.push_back(whole);
    if (options_.frees) release(u);
    free_.clear();  // fewer units are gathered at a time later, so less memory is needed
  }
  offload();
  // One object is used by one thread at a time: concurrent gathering uses its own object.
  const bool is_aside = options_.frees && options_.prefetches && collectives.world_size() > 1;
  if (!is_aside || mpi::has_device_buckets(collectives)) return;
  own_collectives_ = collectives.split(0);
  worker_ = std::make_unique<Worker>();
}

Shards::~Shards() {
  worker_.reset();  // its last work is done
}

/// Values may be anything.
at::DataPtr Shards::take_memory(std::size_t unit) {
  const std::size_t bytes = wholes_[unit].nbytes();
  if (auto found = free_.extract(bytes)) return std::move(found.mapped());
  const at::Tensor fresh = at::empty({wholes_[unit].numel()}, wholes_[unit].options());
  return fresh.storage().set_data_ptr(at::DataPtr(nullptr, wholes_[unit].device()));
}

void Shards::request(std::size_t unit) {
  if (states_[unit] != UnitState::released) return;
  states_[unit] = UnitState::requested;
  follow_brought_back(unit);
  coming_[unit] = at::empty({0}, wholes_[unit].options());
  coming_[unit].storage().set_data_ptr_noswap(take_memory(unit));
  const at::Tensor all = vector_over(coming_[unit].storage().mutable_data(), units_[unit].count(),
                                     wholes_[unit].scalar_type(), wholes_[unit].device());
  const std::span<const std::int64_t> borders = units_[unit].borders;
  if (worker_) {
    arrivals_[unit] = worker_->start(
        [this, borders, mine = slices_[unit], all] { all_gather(mine, all, borders, *own_collectives_); });
  } else if (!are_even(borders) && !mpi::has_device_buckets(*collectives_)) {
    all_gather(slices_[unit], all, borders, *collectives_);
  } else {
    tickets_[unit] = start_all_gather(slices_[unit], all, borders, *collectives_);
    if (!options_.prefetches) collectives_->wait(*std::exchange(tickets_[unit], std::nullopt));
  }
}

void Shards::gather(std::size_t unit) {
  request(unit);
  if (states_[unit] != UnitState::requested) return;
  if (arrivals_[unit].valid()) {
    arrivals_[unit].get();
  } else if (tickets_[unit]) {
    collectives_->wait(*std::exchange(tickets_[unit], std::nullopt));
  }
  wholes_[unit].storage().set_data_ptr_noswap(
      coming_[unit].storage().set_data_ptr(at::DataPtr(nullptr, wholes_[unit].device())));
  coming_[unit].reset();
  states_[unit] = UnitState::gathered;
}

void Shards::release(std::size_t unit) {
  if (states_[unit] == UnitState::requested) gather(unit);
  if (states_[unit] != UnitState::gathered) return;
  at::DataPtr memory = wholes_[unit].storage().set_data_ptr(at::DataPtr(nullptr, wholes_[unit].device()));
  free_.emplace(wholes_[unit].nbytes(), std::move(memory));
  states_[unit] = UnitState::released;
}

void Shards::release_all() {
  for (std::size_t u = 0; u < units_.size(); ++u) release(u);
}

void Shards::offload() {
  if (!options_.offloads) return;
  for (const at::Tensor& slice : slices_) {
    const at::TensorOptions in_host_memory = slice.options().device(at::kCPU).pinned_memory(slice.is_cuda());
    offloaded_.push_back(at::empty(slice.sizes(), in_host_memory).copy_(slice));
  }
  returns_ = std::make_unique<Transfers>(slices_.front().device(), slices_.size());
}

void Shards::await_brought_back() const {
  for (std::size_t u = 0; u < offloaded_.size(); ++u) returns_->await(u);
}

void Shards::bring_back() {
  for (std::size_t u = 0; u < offloaded_.size(); ++u) returns_->start(u, slices_[u], offloaded_[u]);
}

void Shards::follow_brought_back() const {
  for (std::size_t u = 0; u < offloaded_.size(); ++u) follow_brought_back(u);
}

void Shards::follow_brought_back(std::size_t unit) const {
  if (returns_) returns_->follow(unit);
}

void Shards::publish() {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    follow_brought_back(u);  // while the units behind it are still on their way
    // A slice is inside of the whole, which an even gathering does not allow.
    const at::Tensor mine = are_even(units_[u].borders) ? slices_[u].clone() : slices_[u];
    all_gather(mine, wholes_[u], units_[u].borders, *collectives_);
  }
}

void Shards::take_slices() {
  const torch::NoGradGuard no_grad;
  follow_brought_back();
  for (std::size_t u = 0; options_.frees && u < units_.size(); ++u) {  // else they are parts of the whole units
    slices_[u].copy_(wholes_[u].narrow(0, units_[u].begin(collectives_->rank()), slices_[u].numel()));
  }
  for (std::size_t u = 0; u < offloaded_.size(); ++u) offloaded_[u].copy_(slices_[u]);
}

at::Tensor Shards::whole(std::size_t unit, const at::Tensor& mine) {
  const at::Tensor all = at::empty({units_[unit].count()}, mine.options());
  all_gather(mine, all, units_[unit].borders, *collectives_);
  return all;
}

}  // namespace lockstep::parallel
