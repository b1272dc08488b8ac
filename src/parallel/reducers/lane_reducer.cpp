// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/lane_reducer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "models/layers/gradient_sink.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// The number of nodes for which a rank needs memory: the same on every rank.
int max_nodes(const mpi::LaneTree& tree) {
  int max = 1;
  for (int rank = 0; rank < tree.world_size(); ++rank) max = std::max(max, tree.buffers_of(rank));
  return max;
}

std::vector<NodeRow> rows_of(const std::vector<Bucket>& plan, int nodes, mpi::Collectives& collectives) {
  std::vector<NodeRow> rows;
  for (const Bucket& bucket : plan) rows.emplace_back(bucket.dtype, bucket.count, nodes, collectives);
  return rows;
}

bool is_averaged(const at::Tensor& buffer) {
  return buffer.scalar_type() == at::kFloat || buffer.scalar_type() == at::kDouble;
}

std::int64_t count_averaged(const std::vector<at::Tensor>& buffers) {
  std::int64_t count = 0;
  for (const at::Tensor& buffer : buffers) count += is_averaged(buffer) ? buffer.numel() : 0;
  return count;
}

/// Calls `visit(buffer, its values in a node)` for every buffer that is averaged.
template <class Visit>
void for_each_averaged(const std::vector<at::Tensor>& buffers, const NodeRow& row, int node, const Visit& visit) {
  std::int64_t position = 0;
  for (const at::Tensor& buffer : buffers) {
    if (!is_averaged(buffer)) continue;
    visit(buffer, at::from_blob(row.at(node, position), buffer.sizes(), at::kDouble));
    position += buffer.numel();
  }
}

}  // namespace

NodeRow::NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives)
    : dtype_(dtype), count_(static_cast<std::size_t>(count)) {
  const std::size_t line = 64 / size_of(dtype);
  stride_ = (count_ + line - 1) / line * line;
  memory_ = collectives.allocate_bucket(stride_ * static_cast<std::size_t>(nodes) * size_of(dtype));
}

mpi::Ticket NodeRow::start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const {
  return mpi::start_lane_reduce(collectives, memory_.bytes.data(), count_, stride_, dtype_, mpi::ReduceOp::average,
                                tree, by_ranges);
}

LaneBuffers::LaneBuffers(std::function<std::vector<at::Tensor>()> buffers, int nodes, mpi::Collectives& collectives)
    : buffers_(std::move(buffers)), sums_(DType::float64, count_averaged(buffers_()), nodes, collectives) {}

void LaneBuffers::keep() {
  live_ = buffers_();
  kept_.clear();
  for (const at::Tensor& buffer : live_) kept_.push_back(buffer.detach().clone());
}

void LaneBuffers::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < live_.size(); ++i) live_[i].copy_(kept_[i]);
}

void LaneBuffers::collect(mpi::LaneTree::Step step) const {
  const torch::NoGradGuard no_grad;
  for_each_averaged(live_, sums_, step.buffer,
                    [](const at::Tensor& buffer, const at::Tensor& values) { values.copy_(buffer); });
  sums_.fold(step);
}

mpi::Ticket LaneBuffers::start(mpi::Collectives& collectives, const mpi::LaneTree& tree) const {
  return sums_.start(collectives, tree, /*by_ranges=*/false);
}

void LaneBuffers::assign() const {
  const torch::NoGradGuard no_grad;
  for_each_averaged(live_, sums_, 0, [](const at::Tensor& buffer, const at::Tensor& values) { buffer.copy_(values); });
}

LaneReducer::LaneReducer(std::vector<NamedParameter> parameters, std::function<std::vector<at::Tensor>()> buffers,
                         const BucketLimits& limits, mpi::Collectives& collectives, mpi::LaneTree tree,
                         const ReducerObserver& observer)
    : parameters_(std::move(parameters)),
      collectives_(collectives),
      recorder_(observer.recorder),
      tree_(std::move(tree)),
      steps_(tree_.steps_of(collectives.rank())),
      plan_(plan_buckets(specs_of(parameters_), limits)),
      positions_(parameters_.size()),
      rows_(rows_of(plan_, max_nodes(tree_), collectives)),
      used_(DType::float32, static_cast<std::int64_t>(parameters_.size()), max_nodes(tree_), collectives),
      buffers_(std::move(buffers), max_nodes(tree_), collectives),
      tickets_(rows_.size()),
      visits_(collectives, parameters_.size()) {
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    for (const Slot& slot : plan_[b].slots) positions_[slot.parameter] = {b, slot.offset};
  }
  for (int node = 0; node < max_nodes(tree_); ++node) {
    auto& views = views_.emplace_back();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const NodeRow& row = rows_[positions_[i].bucket];
      views.push_back(view_of(row.at(node, positions_[i].offset), parameters_[i].tensor, row.owner()));
    }
  }
  if (observer.on_new_buckets) observer.on_new_buckets(plan_);
}

LaneReducer::~LaneReducer() {
  for (const NamedParameter& parameter : parameters_) models::detach_sink(parameter.tensor);
}

void LaneReducer::prepare(Synchronization mode) {
  if (is_open_) end_lane();
  if (lane_ == steps_.size()) throw std::logic_error("lanes: a forward beyond the last lane of this rank's step");
  if (lane_ == 0) {
    buffers_.keep();
  } else {
    buffers_.restore();
  }
  wants_slices_ = mode == Synchronization::sliced;
  is_sliced_ = false;
  const auto& views = views_[static_cast<std::size_t>(steps_[lane_].buffer)];
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    models::attach_sink(parameters_[i].tensor, views[i]);
    parameters_[i].tensor.mutable_grad().reset();
  }
  is_open_ = true;
}

void LaneReducer::end_lane() {
  const mpi::LaneTree::Step step = steps_[lane_];
  pack(step.buffer);
  buffers_.collect(step);
  for (const NodeRow& row : rows_) row.fold(step);
  used_.fold(step);
  ++lane_;
  is_open_ = false;
}

/// Moves the gradients of the lane into the buckets of its node.
void LaneReducer::pack(int node) {
  const torch::NoGradGuard no_grad;
  const auto& views = views_[static_cast<std::size_t>(node)];
  auto* const used = reinterpret_cast<float*>(used_.at(node, 0));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    used[i] = gradient.defined() ? 1 : 0;
    if (!gradient.defined()) {
      views[i].zero_();
    } else if (gradient.data_ptr() != views[i].data_ptr()) {
      views[i].copy_(gradient);
    }
    gradient.reset();
  }
}

void LaneReducer::finish() {
  if (is_open_) end_lane();
  if (lane_ == 0) return;
  if (lane_ != steps_.size()) throw std::logic_error("lanes: an update before the last lane of this rank's step");
  lane_ = 0;
  if (recorder_ != nullptr) recorder_->note(StepPoint::backward_end);
  // Ranges stay open only until another operation is performed: what all ranks need whole comes first.
  const mpi::Ticket used = used_.start(collectives_, tree_, false);
  const mpi::Ticket buffers = buffers_.start(collectives_, tree_);
  for (std::size_t b = 0; b < rows_.size(); ++b) {
    tickets_[b] = rows_[b].start(collectives_, tree_, wants_slices_);
    if (recorder_ != nullptr) recorder_->note(StepPoint::launched, b);
  }
  {
    const StepRecorder::Meeting meeting(recorder_);
    collectives_.wait(used);
    collectives_.wait(buffers);
  }
  buffers_.assign();
  visits_.begin_step();
  is_sliced_ = wants_slices_;
  if (recorder_ != nullptr || !is_sliced_) await_buckets();
  if (is_sliced_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (has_gradient(i)) parameters_[i].tensor.mutable_grad() = views_[0][i];
  }
}

void LaneReducer::await_buckets() {
  for (std::size_t b = 0; b < tickets_.size(); ++b) {
    if (recorder_ != nullptr) recorder_->note(StepPoint::wait_begin, b);
    if (is_sliced_) {
      visits_.meet(tickets_[b]);
    } else {
      collectives_.wait(tickets_[b]);
    }
    if (recorder_ != nullptr) recorder_->note(StepPoint::wait_end, b);
  }
}

bool LaneReducer::has_gradient(std::size_t parameter) const {
  return *reinterpret_cast<const float*>(used_.at(0, static_cast<std::int64_t>(parameter))) != 0;
}

void LaneReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) {
  const auto [b, offset] = positions_[parameter];
  const NodeRow& row = rows_[b];
  visits_.visit(
      {.ticket = tickets_[b], .begin = row.at(0, offset), .offset = offset, .element_bytes = size_of(row.dtype())},
      parameter, begin, end, visit, keeps);
}

void LaneReducer::reset(GivenUp /*what*/) {
  if (lane_ > 0 || is_open_) buffers_.restore();
  lane_ = 0;
  is_open_ = false;
  is_sliced_ = false;
}

}  // namespace lockstep::parallel
