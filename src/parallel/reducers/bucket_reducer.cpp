// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/bucket_reducer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "batch/nvtx_range.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// One bucket for each dtype.
std::vector<Bucket> plan_whole(const std::vector<ParameterSpec>& specs) {
  return plan_buckets(specs, {.bucket_bytes = {std::numeric_limits<std::int64_t>::max()}, .last_bucket_bytes = 0});
}

std::vector<ParameterSpec> agreed_specs(const std::vector<NamedParameter>& parameters, const mpi::Communicator& world) {
  std::vector<ParameterSpec> specs;
  world.all_or_throw([&] { specs = specs_of(parameters); });
  return specs;
}

}  // namespace

BucketReducer::BucketReducer(std::vector<NamedParameter> parameters, const ReducerOptions& options,
                             mpi::Collectives& collectives, const mpi::Communicator& world, ReducerObserver observer)
    : options_(options),
      collectives_(collectives),
      world_(world),
      gradients_(parameters, agreed_specs(parameters, world)),
      unused_(parameters.size()),
      graph_(parameters.size()),
      visits_(collectives, parameters.size()),
      observer_(std::move(observer)),
      recorder_(observer_.recorder),
      divisor_(collectives.world_size()),
      is_ready_(parameters.size()) {
  if (options_.finds_unused && options_.has_static_graph) {
    log::warning("ddp.find_unused_parameters has no effect with ddp.static_graph: the graph is recorded once");
    options_.finds_unused = false;
  }
  build(is_rebuilding() ? plan_whole(gradients_.specs()) : plan_buckets(gradients_.specs(), options_.limits));
  hooks_ = std::make_unique<AccumulatorHooks>(
      gradients_.parameters(),
      [this](std::size_t parameter, bool has_gradient) { on_accumulated(parameter, has_gradient); });
}

// ---- Buckets

void BucketReducer::build(std::vector<Bucket> plan) {
  gradients_.build(std::move(plan), tail_count(), collectives_);
  pending_.resize(buckets().size());
  tickets_.resize(buckets().size());
  tail_.assign(tail_count(), 0);
  if (observer_.on_new_buckets) observer_.on_new_buckets(buckets().plan());
  begin_step();
}

/// Builds buckets in the order in which gradients came on rank 0.
void BucketReducer::rebuild_by_arrival() {
  check_last_step();
  std::vector<std::int64_t> order(arrival_.begin(), arrival_.end());
  order.resize(gradients_.size());
  world_.broadcast(std::span<std::int64_t>(order));
  const std::vector<std::size_t> agreed(order.begin(), order.end());
  build(plan_buckets(gradients_.specs(), options_.limits, agreed));
  is_rebuilt_ = true;
}

BucketLayout BucketReducer::learned_layout() const {
  if (is_rebuilt_) return layout_of(buckets().plan());
  if (!is_rebuilding() || finished_steps_ == 0 || arrival_.size() != gradients_.size()) return {};
  return layout_of(plan_buckets(gradients_.specs(), options_.limits, arrival_));
}

bool BucketReducer::restore_layout(const BucketLayout& layout) {
  if (!is_rebuilding() || finished_steps_ != 0) return false;
  std::vector<Bucket> plan = buckets_of(gradients_.specs(), layout);
  if (plan.empty()) return false;
  build(std::move(plan));
  is_rebuilt_ = true;
  return true;
}

bool BucketReducer::supports_slices() const noexcept {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const at::Tensor& parameter = gradients_.parameters()[i].tensor;
    const ParameterSpec& spec = gradients_.specs()[i];
    if (spec.is_sparse || scalar_type_of(spec.dtype) != parameter.scalar_type()) return false;
  }
  return !hook_.has_hook() && !mpi::has_device_buckets(collectives_);
}

BucketReport BucketReducer::report() const {
  BucketReport report{
      .buckets = buckets().plan(), .is_rebuilt = is_rebuilt_, .could_be_static = unused_.are_constant()};
  const int ranks = hook_.is_silent() ? 1 : collectives_.world_size();
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    report.use_counts.push_back(static_cast<int>(std::lround(tail_[1 + i] * ranks)));
  }
  return report;
}

void set_comm_hook(Reducer& reducer, CommHook hook, bool is_silent) {
  if (auto* const buckets = ability_of<BucketReducer>(reducer)) buckets->set_comm_hook(std::move(hook), is_silent);
}

// ---- Before a forward

void BucketReducer::prepare(Synchronization mode) {
  if (has_begun_) finish();  // throws, unless everything has come
  is_sliced_ = false;
  if (mode != Synchronization::none) {
    check_late_tail();
    queue_late_tail();
    if (is_rebuilding() && !is_rebuilt_ && finished_steps_ > 0) rebuild_by_arrival();
  }
  // The graph that is learned from the first step is needed whole.
  mode_ = mode == Synchronization::sliced && is_learning() ? Synchronization::whole : mode;
  is_expecting_ = mode != Synchronization::none;
  begin_step();
}

void BucketReducer::begin_step() {
  is_callback_queued_ = false;
  has_marked_unused_ = false;
  ready_count_ = 0;
  started_ = 0;
  if (finished_steps_ == 0) arrival_.clear();  // remains of a first step that was not finished
  std::fill(is_ready_.begin(), is_ready_.end(), char{0});
  visits_.begin_step();
  gradients_.begin_step();
  unused_.clear();
  graph_.begin_step();
  for (std::size_t b = 0; b < buckets().size(); ++b) pending_[b] = buckets().bucket(b).slots.size();
}

std::vector<at::Tensor> BucketReducer::watch(std::vector<at::Tensor> outputs) {
  if (!is_expecting_ || !watches_outputs()) return outputs;
  if (options_.finds_unused) unused_.find(outputs, hooks_->nodes());
  return pass_through(std::move(outputs), [this, alive = std::weak_ptr<void>(alive_)] {
    // Queued here and not in a hook: a hook may belong to a backward inside this one.
    if (alive.expired() || !is_learning()) return;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
  });
}

// ---- During backward

void BucketReducer::on_accumulated(std::size_t parameter, bool has_gradient) {
  const std::lock_guard<std::mutex> hold(mutex_);
  gradients_.note_use(parameter, has_gradient);
  if (!is_expecting_) return;
  has_begun_ = true;
  if (is_learning()) return graph_.learn_use(parameter);
  queue_end_of_backward();
  if (!has_marked_unused_) mark_unused();
  if (is_complete_use(parameter)) mark_ready(parameter);
}

/// Whether no further gradient of the parameter comes in this step.
bool BucketReducer::is_complete_use(std::size_t parameter) {
  if (!options_.has_static_graph) return true;
  const StaticGraph::Use use = graph_.count_use(parameter);
  if (use == StaticGraph::Use::beyond) {
    throw ConfigError("ddp: the training graph has changed: " + gradients_.cite(parameter) +
                      " is used more often than in the first step; set ddp.static_graph=false");
  }
  return use == StaticGraph::Use::last;
}

/// A parameter that is known not to be used needs no waiting.
void BucketReducer::mark_unused() {
  has_marked_unused_ = true;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (options_.has_static_graph ? graph_.is_unused(i) : unused_.contains(i)) mark_ready(i);
  }
}

void BucketReducer::queue_end_of_backward() {
  if (std::exchange(is_callback_queued_, true)) return;
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    is_callback_queued_ = false;
    const bool is_complete = ready_count_ == gradients_.size();  // else more backward passes may follow
    if (is_complete && mode_ == Synchronization::whole) finish();
  });
}

void BucketReducer::mark_ready(std::size_t parameter) {
  if (is_ready_[parameter] != 0) {
    throw ConfigError("ddp: " + gradients_.cite(parameter) +
                      " was marked ready twice, but can be marked ready only once in a step: it was used outside of "
                      "forward, or by a backward inside the backward; run the model through the wrapper, or set "
                      "ddp.static_graph");
  }
  gradients_.pack(parameter);
  is_ready_[parameter] = 1;
  ++ready_count_;
  if (!is_rebuilt_ && finished_steps_ == 0) arrival_.push_back(parameter);
  const std::size_t b = buckets().bucket_of(parameter);
  if (--pending_[b] == 0 && recorder_ != nullptr) recorder_->note(StepPoint::ready, b);
  start_ready_buckets();
}

void BucketReducer::start_ready_buckets() {
  while (started_ < buckets().size() && pending_[started_] == 0) start(started_);
}

/// Sparse gradients and a tail alone are reduced without the hook.
bool BucketReducer::is_for_hook(std::size_t b) const {
  return hook_.has_hook() && !buckets().bucket(b).is_sparse && !buckets().bucket(b).slots.empty();
}

void BucketReducer::start(std::size_t b) {
  const batch::NvtxRange range("bucket", b);
  const Bucket& bucket = buckets().bucket(b);
  const bool is_last = b + 1 == buckets().size();
  ++started_;
  if (is_last) fill_tail();
  if (is_for_hook(b)) hook_.start(b, buckets().as_hook_sees(b, gradients_.parameters()));
  if (recorder_ != nullptr) recorder_->note(StepPoint::launched, b);
  if (bucket.is_sparse || hook_.is_silent() || (hook_.has_hook() && !is_last)) return;
  std::byte* memory = buckets().memory(b);
  std::size_t count = buckets().reduced_count(b);
  if (hook_.has_hook()) {  // the tail goes alone
    memory += static_cast<std::size_t>(bucket.count) * buckets().element_bytes(b);
    count = buckets().tail_slice().count;
  }
  tickets_[b] = mode_ == Synchronization::sliced
                    ? collectives_.start_reduce_ranges(memory, count, bucket.dtype, mpi::ReduceOp::average)
                    : collectives_.start_all_reduce(memory, count, bucket.dtype, mpi::ReduceOp::average);
}

void BucketReducer::fill_tail() {
  tail_[0] = missing_count_;
  for (std::size_t i = 0; i < gradients_.size(); ++i) tail_[1 + i] = gradients_.is_used(i) ? 1 : 0;
  missing_count_ = 0;
  buckets().write_tail(tail_);
}

// ---- After backward

void BucketReducer::finish() {
  if (!is_expecting_) return;
  is_expecting_ = false;
  has_begun_ = false;
  if (recorder_ != nullptr) recorder_->note(StepPoint::backward_end);
  if (is_learning()) {
    for (const std::size_t parameter : graph_.order_of_last_use()) mark_ready(parameter);
  } else if (!has_marked_unused_) {
    mark_unused();  // backward reached no parameter
  }
  const std::string missing = mark_missing();
  while (started_ < buckets().size()) start(started_);
  complete();
  if (has_late_tail_) {
    late_missing_ = missing;
  } else if (tail_[0] != 0) {
    fail(missing);
  }
  ++finished_steps_;
}

/// Packs what did not come. Returns one line "index name" for each such parameter.
std::string BucketReducer::mark_missing() {
  std::string missing;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (is_ready_[i] != 0) continue;
    missing += std::to_string(i) + " " + gradients_.parameters()[i].name + "\n";
    gradients_.pack(i);
  }
  missing_count_ = static_cast<double>(gradients_.size() - ready_count_);
  return missing;
}

void BucketReducer::contribute_zeros() {
  prepare(Synchronization::whole);
  is_expecting_ = false;
  for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_.pack_zero(i);
  missing_count_ = 0;
  if (arrival_.empty()) {
    for (std::size_t i = gradients_.size(); i > 0; --i) arrival_.push_back(i - 1);
  }
  while (started_ < buckets().size()) start(started_);
  complete();
  ++finished_steps_;
}

void BucketReducer::complete() {
  if (mode_ == Synchronization::sliced) {
    complete_sliced();
  } else {
    complete_whole();
  }
  gradients_.clear_uses();
}

void BucketReducer::complete_sliced() {
  // Waits bucket by bucket, so that each wait can be recorded; otherwise the first range waits for all.
  for (std::size_t b = 0; recorder_ != nullptr && b < buckets().size(); ++b) {
    recorder_->note(StepPoint::wait_begin, b);
    visits_.meet(tickets_[b]);
    recorder_->note(StepPoint::wait_end, b);
  }
  const mpi::Slice slice = buckets().tail_slice();
  const at::Tensor tail = at::empty_like(buckets().tail());
  const std::span<std::byte> bytes = bytes_of(tail);
  collectives_.reduce_range(tickets_.back(), slice, [&](std::size_t begin, const std::byte* values, std::size_t count) {
    std::memcpy(bytes.data() + (begin - slice.begin) * tail.element_size(), values, count * tail.element_size());
  });
  tail_ = numbers_in(tail);
  is_sliced_ = true;
}

void BucketReducer::complete_whole() {
  // The tail first, so that nothing is under way should a hook fail.
  if (hook_.has_hook() && !hook_.is_silent()) {
    const StepRecorder::Meeting meeting(recorder_);
    collectives_.wait(tickets_.back());
  }
  await_buckets();
  read_tail();
  assign_averages();
}

void BucketReducer::await_buckets() {
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    if (recorder_ != nullptr) recorder_->note(StepPoint::wait_begin, b);
    if (is_for_hook(b)) hook_.finish(b, buckets().as_hook_sees(b, gradients_.parameters()));
    if (!hook_.has_hook() && !buckets().bucket(b).is_sparse) collectives_.wait(tickets_[b]);
    if (recorder_ != nullptr) recorder_->note(StepPoint::wait_end, b);
  }
}

/// Reading what a GPU has reduced makes the host wait for it. Where every parameter must be used on every rank, the
/// tail is copied when the next step begins, and read when the step after that begins: only a mistake is reported
/// later.
void BucketReducer::read_tail() {
  has_late_tail_ = mpi::has_device_buckets(collectives_) && !watches_outputs();
  if (has_late_tail_) {
    std::fill(tail_.begin(), tail_.end(), 1.0);
    tail_[0] = 0;
  } else {
    tail_ = numbers_in(buckets().tail());
  }
}

void BucketReducer::check_late_tail() {
  if (!queued_tail_.are_pending()) return;
  if (numbers_in(queued_tail_.take())[0] != 0) fail(std::exchange(queued_missing_, {}));
}

void BucketReducer::queue_late_tail() {
  if (!std::exchange(has_late_tail_, false)) return;
  queued_tail_.queue(buckets().tail());
  queued_missing_ = std::exchange(late_missing_, {});
}

/// Both the tail that is on its way and the one behind it.
void BucketReducer::check_last_step() {
  check_late_tail();
  queue_late_tail();
  check_late_tail();
}

/// Makes every `.grad` the average, or what it was where no rank used the parameter.
void BucketReducer::assign_averages() {
  const double factor = static_cast<double>(collectives_.world_size()) / divisor_;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_.is_sparse(i)) {
      const StepRecorder::Meeting meeting(recorder_);
      if (!hook_.is_silent() && has_gradient(i))
        average_sparse(gradients_.parameters()[i].tensor, collectives_, divisor_);
    } else if (!buckets().view(i).defined()) {
      continue;
    } else if (has_gradient(i)) {
      gradients_.assign(i, factor);
    } else {
      gradients_.restore_stale(i);
    }
  }
}

void BucketReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) {
  const std::size_t b = buckets().bucket_of(parameter);
  const std::int64_t offset = buckets().offset_of(parameter);
  const std::size_t element_bytes = buckets().element_bytes(b);
  visits_.visit({.ticket = tickets_[b],
                 .begin = buckets().memory(b) + static_cast<std::size_t>(offset) * element_bytes,
                 .offset = offset,
                 .element_bytes = element_bytes},
                parameter, begin, end, visit, keeps);
}

/// Ranks may have come to different buckets: all start what any of them has started, and take it to its end.
void BucketReducer::end_started() {
  const auto max = static_cast<std::size_t>(world_.all_reduce(static_cast<std::int64_t>(started_), mpi::Op::max));
  while (started_ < max) start(started_);
  collectives_.barrier();  // performs what was started before it
}

void BucketReducer::reset(GivenUp what) {
  if (what == GivenUp::step) end_started();
  is_expecting_ = false;
  has_begun_ = false;
  is_sliced_ = false;
  has_late_tail_ = false;
  if (queued_tail_.are_pending()) queued_tail_.take();
  if (finished_steps_ == 0) graph_.forget();
  begin_step();
  gradients_.clear_uses();
}

void BucketReducer::fail(const std::string& missing) {
  std::vector<std::string> all(static_cast<std::size_t>(world_.size()));
  if (hook_.is_silent()) {
    all[static_cast<std::size_t>(world_.rank())] = missing;
  } else {
    all = world_.all_gather(missing);
  }
  begin_step();
  is_sliced_ = false;
  const std::string text = "ddp: the previous reduction cannot be finished: no gradient for " + describe_missing(all) +
                           "; " + remedy_of_missing(options_);
  if (hook_.is_silent()) throw ConfigError(text);
  throw_agreed(ExitCode::configuration, text);
}

}  // namespace lockstep::parallel
