// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/gradient_sink.hpp>
#include <lockstep/parallel/lane_reducer.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "step_recorder.hpp"

namespace lockstep::parallel {

namespace {

/// A row of equal buffers of one dtype in bucket memory: one for each node that a rank may hold.
class NodeRow {
 public:
  NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives)
      : dtype_(dtype), count_(static_cast<std::size_t>(count)) {
    const std::size_t line = 64 / size_of(dtype);
    stride_ = (count_ + line - 1) / line * line;
    memory_ = collectives.allocate_bucket(stride_ * static_cast<std::size_t>(nodes) * size_of(dtype));
  }

  std::byte* at(int node, std::int64_t element) const {
    return memory_.bytes.data() +
           (static_cast<std::size_t>(node) * stride_ + static_cast<std::size_t>(element)) * size_of(dtype_);
  }
  const std::shared_ptr<void>& owner() const { return memory_.owner; }
  DType dtype() const { return dtype_; }
  std::size_t count() const { return count_; }

  void fold(mpi::LaneTree::Step step) const { mpi::fold_lane(step, memory_.bytes.data(), count_, stride_, dtype_); }
  mpi::Ticket start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const {
    void* const nodes = memory_.bytes.data();
    return by_ranges ? collectives.start_lane_ranges(nodes, count_, stride_, dtype_, mpi::ReduceOp::average, tree)
                     : collectives.start_lane_reduce(nodes, count_, stride_, dtype_, mpi::ReduceOp::average, tree);
  }

 private:
  DType dtype_;
  std::size_t count_;
  std::size_t stride_;
  mpi::BucketMemory memory_;
};

int most_buffers(const mpi::LaneTree& tree) {
  int most = 1;
  for (int rank = 0; rank < tree.world_size(); ++rank) most = std::max(most, tree.buffers_of(rank));
  return most;
}

bool is_averaged(const at::Tensor& buffer) {
  return buffer.scalar_type() == at::kFloat || buffer.scalar_type() == at::kDouble;
}

}  // namespace

class LaneReducer::Impl {
 public:
  Impl(std::vector<NamedParameter> parameters, std::function<std::vector<at::Tensor>()> buffers,
       const BucketLimits& limits, mpi::Collectives& collectives, mpi::LaneTree tree)
      : parameters_(std::move(parameters)),
        buffers_(std::move(buffers)),
        collectives_(collectives),
        tree_(std::move(tree)),
        steps_(tree_.steps_of(collectives.rank())),
        plan_(plan_buckets(specs_of(parameters_), limits)),
        places_(parameters_.size()) {
    const int nodes = most_buffers(tree_);
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      rows_.emplace_back(plan_[b].dtype, plan_[b].count, nodes, collectives_);
      for (const Slot& slot : plan_[b].slots) places_[slot.parameter] = {b, slot.offset};
    }
    used_ =
        std::make_unique<NodeRow>(DType::float32, static_cast<std::int64_t>(parameters_.size()), nodes, collectives_);
    std::int64_t averaged = 0;
    for (const at::Tensor& buffer : buffers_()) averaged += is_averaged(buffer) ? buffer.numel() : 0;
    statistics_ = std::make_unique<NodeRow>(DType::float64, averaged, nodes, collectives_);
    for (int node = 0; node < nodes; ++node) {
      auto& views = views_.emplace_back();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const NodeRow& row = rows_[places_[i].bucket];
        views.push_back(view_of(row.at(node, places_[i].offset), parameters_[i].tensor, row.owner()));
      }
    }
    tickets_.resize(rows_.size());
    is_kept_.resize(parameters_.size());
  }

  ~Impl() {
    for (const NamedParameter& parameter : parameters_) models::detach_sink(parameter.tensor);
  }

  void begin_lane(bool is_sliced) {
    if (is_open_) end_lane();
    if (lane_ == steps_.size()) throw std::logic_error("lanes: a forward beyond the last lane of this rank's step");
    if (lane_ == 0)
      keep_buffers();
    else
      restore_buffers();
    wants_slices_ = is_sliced;
    is_sliced_ = false;
    const auto& views = views_[static_cast<std::size_t>(steps_[lane_].buffer)];
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      models::attach_sink(parameters_[i].tensor, views[i]);
      parameters_[i].tensor.mutable_grad().reset();
    }
    is_open_ = true;
  }

  void finish() {
    if (is_open_) end_lane();
    if (lane_ == 0) return;
    if (lane_ != steps_.size()) throw std::logic_error("lanes: an update before the last lane of this rank's step");
    lane_ = 0;
    if (recorder_ != nullptr) recorder_->backward_ends();
    // Ranges stay open only until another operation is performed: what all ranks need whole comes first.
    const mpi::Ticket used = used_->start(collectives_, tree_, false);
    const mpi::Ticket statistics = statistics_->start(collectives_, tree_, false);
    for (std::size_t b = 0; b < rows_.size(); ++b) {
      tickets_[b] = rows_[b].start(collectives_, tree_, wants_slices_);
      if (recorder_ != nullptr) recorder_->bucket_launched(b);
    }
    {
      const StepRecorder::Meeting meeting(recorder_);
      collectives_.wait(used);
      collectives_.wait(statistics);
    }
    set_buffers();
    std::fill(is_kept_.begin(), is_kept_.end(), char{0});
    is_sliced_ = wants_slices_;
    if (recorder_ != nullptr || !is_sliced_) await_buckets();
    if (is_sliced_) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (has_gradient(i)) parameters_[i].tensor.mutable_grad() = views_[0][i];
    }
  }

  bool is_sliced() const { return is_sliced_; }
  void release() { is_sliced_ = false; }
  bool has_gradient(std::size_t i) const {
    return *reinterpret_cast<const float*>(used_->at(0, static_cast<std::int64_t>(i))) != 0;
  }

  void visit(std::size_t i, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) {
    if (begin == end) return;
    const auto [b, offset] = places_[i];
    const NodeRow& row = rows_[b];
    if (is_kept_[i] != 0) return visit(begin, end - begin, row.at(0, offset + begin));
    const mpi::Slice range{.begin = static_cast<std::size_t>(offset + begin),
                           .count = static_cast<std::size_t>(end - begin)};
    const auto consume = [&, offset = offset](std::size_t first, const std::byte* values, std::size_t count) {
      visit(static_cast<std::int64_t>(first) - offset, static_cast<std::int64_t>(count), values);
      std::byte* const place = row.at(0, static_cast<std::int64_t>(first));
      if (keeps && place != values) std::memcpy(place, values, count * size_of(row.dtype()));
    };
    collectives_.reduce_range(tickets_[b], range, consume);
    if (keeps) is_kept_[i] = 1;
  }

  void reset() {
    if (lane_ > 0 || is_open_) restore_buffers();
    lane_ = 0;
    is_open_ = false;
    is_sliced_ = false;
  }

  void record_into(StepRecorder& recorder) { recorder_ = &recorder; }
  const std::vector<Bucket>& plan() const { return plan_; }
  const mpi::LaneTree& tree() const { return tree_; }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
  };

  void await_buckets() {
    for (std::size_t b = 0; b < tickets_.size(); ++b) {
      if (recorder_ != nullptr) recorder_->wait_begins(b);
      if (is_sliced_) {
        collectives_.reduce_range(tickets_[b], {}, [](std::size_t, const std::byte*, std::size_t) {});
      } else {
        collectives_.wait(tickets_[b]);
      }
      if (recorder_ != nullptr) recorder_->wait_ends(b);
    }
  }

  void end_lane() {
    const torch::NoGradGuard no_grad;
    const mpi::LaneTree::Step step = steps_[lane_];
    const auto& views = views_[static_cast<std::size_t>(step.buffer)];
    auto* const used = reinterpret_cast<float*>(used_->at(step.buffer, 0));
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
    collect_buffers(step.buffer);
    for (const NodeRow& row : rows_) row.fold(step);
    used_->fold(step);
    statistics_->fold(step);
    ++lane_;
    is_open_ = false;
  }

  void keep_buffers() {
    live_ = buffers_();
    kept_.clear();
    for (const at::Tensor& buffer : live_) kept_.push_back(buffer.detach().clone());
  }

  void restore_buffers() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < live_.size(); ++i) live_[i].copy_(kept_[i]);
  }

  /// Calls `visit(buffer, its values in a node)` for every buffer that is averaged.
  template <class Visit>
  void for_each_average(int node, const Visit& visit) const {
    std::int64_t at = 0;
    for (const at::Tensor& buffer : live_) {
      if (!is_averaged(buffer)) continue;
      visit(buffer, at::from_blob(statistics_->at(node, at), buffer.sizes(), at::kDouble));
      at += buffer.numel();
    }
  }

  void collect_buffers(int node) const {
    for_each_average(node, [](const at::Tensor& buffer, const at::Tensor& values) { values.copy_(buffer); });
  }

  void set_buffers() const {
    const torch::NoGradGuard no_grad;
    for_each_average(0, [](const at::Tensor& buffer, const at::Tensor& values) { buffer.copy_(values); });
  }

  std::vector<NamedParameter> parameters_;
  std::function<std::vector<at::Tensor>()> buffers_;
  mpi::Collectives& collectives_;
  StepRecorder* recorder_ = nullptr;
  mpi::LaneTree tree_;
  std::span<const mpi::LaneTree::Step> steps_;  // of this rank's lanes
  std::vector<Bucket> plan_;
  std::vector<Place> places_;                   // by parameter
  std::vector<NodeRow> rows_;                   // by bucket
  std::unique_ptr<NodeRow> used_;               // share of the lanes that used each parameter
  std::unique_ptr<NodeRow> statistics_;         // buffers
  std::vector<std::vector<at::Tensor>> views_;  // [node][parameter]
  std::vector<mpi::Ticket> tickets_;            // by bucket
  std::vector<char> is_kept_;                   // by parameter: its own part is averaged in place
  std::vector<at::Tensor> live_;                // buffers
  std::vector<at::Tensor> kept_;                // their values at the start of the step
  std::size_t lane_ = 0;                        // of this rank, in the step at hand
  bool is_open_ = false;
  bool wants_slices_ = false;
  bool is_sliced_ = false;
};

LaneReducer::LaneReducer(std::vector<NamedParameter> parameters, std::function<std::vector<at::Tensor>()> buffers,
                         const BucketLimits& limits, mpi::Collectives& collectives, mpi::LaneTree tree)
    : impl_(std::make_unique<Impl>(std::move(parameters), std::move(buffers), limits, collectives, std::move(tree))) {}

LaneReducer::~LaneReducer() = default;

void LaneReducer::begin_lane(bool is_sliced) { impl_->begin_lane(is_sliced); }

void LaneReducer::finish() { impl_->finish(); }

bool LaneReducer::is_sliced() const noexcept { return impl_->is_sliced(); }

bool LaneReducer::has_gradient(std::size_t parameter) const { return impl_->has_gradient(parameter); }

void LaneReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) {
  impl_->visit(parameter, begin, end, visit, keeps);
}

void LaneReducer::release() noexcept { impl_->release(); }

void LaneReducer::on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) { listener(impl_->plan()); }

void LaneReducer::reset() { impl_->reset(); }

void LaneReducer::record_into(StepRecorder& recorder) { impl_->record_into(recorder); }

const mpi::LaneTree& LaneReducer::tree() const noexcept { return impl_->tree(); }

double sum_by_lanes(std::span<const double> values) {
  struct LaneNode {
    double sum;
    std::size_t lanes;
  };
  std::vector<LaneNode> stack;
  for (const double value : values) {
    stack.push_back({value, 1});
    while (stack.size() > 1 && stack[stack.size() - 2].lanes == stack.back().lanes) {
      const LaneNode upper = stack.back();
      stack.pop_back();
      stack.back() = {stack.back().sum + upper.sum, 2 * upper.lanes};
    }
  }
  double sum = 0;
  for (std::size_t i = stack.size(); i > 0; --i) sum = i == stack.size() ? stack[i - 1].sum : stack[i - 1].sum + sum;
  return sum;
}

}  // namespace lockstep::parallel
