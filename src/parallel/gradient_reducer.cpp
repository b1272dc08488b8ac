// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/gradient_sink.hpp>
#include <lockstep/parallel/gradient_reducer.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "accumulator_hooks.hpp"
#include "autograd_graph.hpp"
#include "gradient_buckets.hpp"
#include "missing_gradients.hpp"
#include "output_watch.hpp"
#include "sparse_gradients.hpp"
#include "step_recorder.hpp"

namespace lockstep::parallel {

namespace {

/// One bucket for each dtype.
std::vector<Bucket> plan_whole(const std::vector<ParameterSpec>& specs) {
  return plan_buckets(specs, {.bucket_bytes = {std::numeric_limits<std::int64_t>::max()}, .last_bucket_bytes = 0});
}

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  const bool is_plain = to.is_cpu() && to.scalar_type() == from.scalar_type();
  if (is_plain && to.strides() == from.strides() && is_flat(from)) {
    if (to.numel() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
    return;
  }
  const torch::NoGradGuard no_grad;
  to.copy_(from);
}

}  // namespace

class GradientReducer::Impl : public AccumulatorListener {
 public:
  Impl(std::vector<NamedParameter> parameters, const ReducerOptions& options, mpi::Collectives& collectives,
       const mpi::Communicator& world)
      : parameters_(std::move(parameters)),
        options_(options),
        collectives_(collectives),
        world_(world),
        divisor_(collectives.world_size()),
        states_(parameters_.size()) {
    world_.together([this] { specs_ = specs_of(parameters_); });
    if (options_.finds_unused && options_.has_static_graph) {
      log::warning("ddp.find_unused_parameters has no effect with ddp.static_graph: the graph is learned once");
      options_.finds_unused = false;
    }
    build(rebuilds() ? plan_whole(specs_) : plan_buckets(specs_, options_.limits));
    hooks_ = std::make_unique<AccumulatorHooks>(parameters_, *this);
  }

  ~Impl() override { detach_sinks(); }

  // ---- before a forward

  void prepare(Synchronisation synchronisation) {
    if (has_begun_) finish();  // throws, unless everything has come
    look_at_late_tail();
    is_sliced_ = false;
    if (synchronisation != Synchronisation::none && rebuilds() && !is_rebuilt_ && finished_steps_ > 0) rebuild();
    synchronisation_ = synchronisation;
    // What is learned from the first step is needed whole.
    if (synchronisation == Synchronisation::sliced && is_learning()) synchronisation_ = Synchronisation::whole;
    is_expecting_ = synchronisation != Synchronisation::none;
    begin_step();
  }

  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs) {
    if (!is_expecting_) return outputs;
    if (options_.finds_unused) find_unused(outputs);
    if (!options_.finds_unused && !options_.has_static_graph) return outputs;
    return pass_through(std::move(outputs), [this, alive = std::weak_ptr<void>(alive_)] {
      // Queued here and not in a hook: a hook may belong to a backward inside this one.
      if (alive.expired() || !is_learning()) return;
      torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
    });
  }

  // ---- during backward

  void on_accumulated(std::size_t i, bool has_gradient) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    State& state = states_[i];
    state.is_used = take_sink_write(i) || has_gradient || state.is_used;
    if (!is_expecting_) return;
    has_begun_ = true;
    if (is_learning()) {
      ++state.uses_per_step;
      state.last_use = ++uses_;
      return;
    }
    queue_end();
    if (!has_marked_unused_) mark_unused();
    if (options_.has_static_graph) {
      if (++state.uses > state.uses_per_step) {
        throw ConfigError("ddp: the training graph has changed: " + cite(i) + " is used more often than in the first " +
                          "step; switch ddp.static_graph off");
      }
      if (state.uses < state.uses_per_step) return;
    }
    mark_ready(i);
  }

  // ---- after backward

  void finish() {
    if (!is_expecting_) return;
    is_expecting_ = false;
    has_begun_ = false;
    if (recorder_ != nullptr) recorder_->backward_ends();
    if (is_learning()) {
      learn();
    } else if (!has_marked_unused_) {
      mark_unused();  // backward reached no parameter
    }
    std::string missing;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].is_ready) continue;
      missing += std::to_string(i) + " " + parameters_[i].name + "\n";
      move_into_bucket(i);
    }
    missing_count_ = static_cast<double>(states_.size() - ready_count_);
    while (started_ < buckets_.size()) start(started_);
    complete();
    if (has_late_tail_) {
      late_missing_ = missing;
    } else if (tail_[0] != 0) {
      fail(missing);
    }
    ++finished_steps_;
  }

  void contribute_nothing() {
    prepare(Synchronisation::whole);
    is_expecting_ = false;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (buckets_.view(i).defined()) buckets_.view(i).zero_();
    }
    missing_count_ = 0;
    if (arrival_.empty()) {
      for (std::size_t i = states_.size(); i > 0; --i) arrival_.push_back(i - 1);
    }
    while (started_ < buckets_.size()) start(started_);
    complete();
    ++finished_steps_;
  }

  bool is_sliced() const { return is_sliced_; }
  bool has_gradient(std::size_t i) const { return tail_[1 + i] != 0; }

  void visit(std::size_t i, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) {
    if (begin == end) return;
    const std::size_t b = buckets_.bucket_of(i);
    const std::int64_t offset = buckets_.offset_of(i);
    const std::size_t element_bytes = buckets_.element_bytes(b);
    std::byte* const slot = buckets_.memory(b) + static_cast<std::size_t>(offset) * element_bytes;
    if (is_kept_[i] != 0) {
      return visit(begin, end - begin, slot + static_cast<std::size_t>(begin) * element_bytes);
    }
    const mpi::Slice range{.begin = static_cast<std::size_t>(offset + begin),
                           .count = static_cast<std::size_t>(end - begin)};
    collectives_.reduce_range(tickets_[b], range, [&](std::size_t first, const std::byte* values, std::size_t count) {
      const std::int64_t at = static_cast<std::int64_t>(first) - offset;
      visit(at, static_cast<std::int64_t>(count), values);
      // Only this rank reads its own part of its own bucket.
      std::byte* const place = slot + static_cast<std::size_t>(at) * element_bytes;
      if (keeps && place != values) std::memcpy(place, values, count * element_bytes);
    });
    if (keeps) is_kept_[i] = 1;
  }

  void release() { is_sliced_ = false; }

  void reset() {
    // Ranks may have come to different buckets: all start what any of them has started, and take it to its end.
    const auto most = static_cast<std::size_t>(world_.all_reduce(static_cast<std::int64_t>(started_), mpi::Op::max));
    while (started_ < most) start(started_);
    if (!hook_ && synchronisation_ == Synchronisation::whole) {
      for (std::size_t b = 0; b < started_; ++b) collectives_.wait(tickets_[b]);
    }
    collectives_.barrier();
    is_expecting_ = false;
    has_begun_ = false;
    is_callback_queued_ = false;
    is_sliced_ = false;
    has_late_tail_ = false;
    if (finished_steps_ == 0) {
      for (State& state : states_) state = {};
    }
    begin_step();
    forget_uses();
  }

  void set_comm_hook(CommHook hook, bool is_silent) {
    if (hook_) throw ConfigError("ddp: a communication hook is set already; a wrapper takes one");
    if (!hook) throw ConfigError("ddp: the communication hook is empty");
    if (finished_steps_ > 0) throw ConfigError("ddp: set the communication hook before the first step");
    hook_ = std::move(hook);
    is_silent_ = is_silent;
  }

  bool supports_slices() const {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].tensor;
      if (specs_[i].is_sparse || scalar_type_of(specs_[i].dtype) != parameter.scalar_type()) return false;
    }
    return !hook_ && !collectives_.has_device_buckets();
  }

  void on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) {
    listener_ = std::move(listener);
    listener_(buckets_.plan());
  }

  BucketLayout learned_layout() const {
    if (is_rebuilt_) return layout_of(buckets_.plan());
    if (!rebuilds() || finished_steps_ == 0 || arrival_.size() != parameters_.size()) return {};
    return layout_of(plan_buckets(specs_, options_.limits, arrival_));
  }

  bool restore_layout(const BucketLayout& layout) {
    std::vector<Bucket> plan = rebuilds() && finished_steps_ == 0 ? buckets_of(specs_, layout) : std::vector<Bucket>();
    if (plan.empty()) return false;
    rebuild(std::move(plan));
    return true;
  }

  void set_divisor(int ranks) { divisor_ = ranks; }
  void record_into(StepRecorder& recorder) { recorder_ = &recorder; }
  const std::vector<Bucket>& buckets() const { return buckets_.plan(); }
  bool is_rebuilt() const { return is_rebuilt_; }
  bool could_be_static() const { return could_be_static_; }

  std::vector<int> use_counts() const {
    std::vector<int> counts;
    const int ranks = is_silent_ ? 1 : collectives_.world_size();
    for (std::size_t i = 0; i < states_.size() && !tail_.empty(); ++i) {
      counts.push_back(static_cast<int>(std::lround(tail_[1 + i] * ranks)));
    }
    return counts;
  }

 private:
  /// Of one parameter.
  struct State {
    bool is_ready = false;   // in this step: its contribution is in the bucket
    bool is_used = false;    // a gradient came since the last synchronised step
    bool is_unused = false;  // the graph of this step does not reach it
    bool has_graph = false;  // its gradient belongs to a graph (create_graph) and stays apart from the bucket
    int uses = 0;            // of its accumulator in this step
    int uses_per_step = 0;   // static graph: as counted in the first step
    int last_use = 0;        // static graph: when it came in the first step
    at::Tensor stale;        // the gradient that it had before a step that did not use it here
  };

  bool rebuilds() const { return !options_.finds_unused; }
  bool is_learning() const { return options_.has_static_graph && finished_steps_ == 0; }
  std::string cite(std::size_t i) const {
    return "parameter at index " + std::to_string(i) + " ('" + parameters_[i].name + "')";
  }

  void attach_sinks() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].tensor;
      const at::Tensor& view = buckets_.view(i);
      const bool fits =
          view.defined() && view.scalar_type() == parameter.scalar_type() && view.strides() == parameter.strides();
      if (fits) models::attach_sink(parameter, view);
    }
  }

  void detach_sinks() {
    for (const NamedParameter& parameter : parameters_) models::detach_sink(parameter.tensor);
  }

  /// Whether a layer wrote this parameter's gradient straight into the bucket since it was last asked.
  bool take_sink_write(std::size_t i) {
    models::GradientSink* const sink = models::sink_of(parameters_[i].tensor);
    return sink != nullptr && std::exchange(sink->is_written, false);
  }

  void build(std::vector<Bucket> plan) {
    buckets_ = GradientBuckets(std::move(plan), parameters_, 1 + parameters_.size(), collectives_);
    pending_.resize(buckets_.size());
    tickets_.resize(buckets_.size());
    completions_.resize(buckets_.size());
    is_kept_.resize(parameters_.size());
    tail_.assign(1 + parameters_.size(), 0);
    attach_sinks();
    if (listener_) listener_(buckets_.plan());
    begin_step();
  }

  /// Builds buckets in the order in which gradients came on rank 0.
  void rebuild() {
    std::vector<std::int64_t> order(arrival_.begin(), arrival_.end());
    order.resize(parameters_.size());
    world_.broadcast(std::span<std::int64_t>(order));
    const std::vector<std::size_t> agreed(order.begin(), order.end());
    rebuild(plan_buckets(specs_, options_.limits, agreed));
  }

  void rebuild(std::vector<Bucket> plan) {
    std::vector<at::Tensor> kept(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
      if (gradient.defined() && is_in_bucket(i)) {
        kept[i] = gradient.clone();
        gradient.reset();
      }
    }
    detach_sinks();
    buckets_ = {};  // before the new ones are allocated
    build(std::move(plan));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!kept[i].defined()) continue;
      copy_values(buckets_.view(i), kept[i]);
      parameters_[i].tensor.mutable_grad() = buckets_.view(i);
    }
    is_rebuilt_ = true;
  }

  void begin_step() {
    is_callback_queued_ = false;
    has_marked_unused_ = false;
    ready_count_ = 0;
    started_ = 0;
    if (finished_steps_ == 0) arrival_.clear();  // of a first step that was not finished
    std::fill(is_kept_.begin(), is_kept_.end(), char{0});
    for (State& state : states_) {
      state.is_ready = false;
      state.is_unused = false;
      state.has_graph = false;
      state.uses = 0;
      state.stale.reset();
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) pending_[b] = buckets_.bucket(b).slots.size();
  }

  void find_unused(const std::vector<at::Tensor>& outputs) {
    graph_.collect(outputs);
    std::vector<char> unused(states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) unused[i] = graph_.contains(hooks_->nodes()[i].get()) ? 0 : 1;
    if (!first_unused_.empty()) could_be_static_ = could_be_static_ && unused == first_unused_;
    if (first_unused_.empty()) first_unused_ = unused;
    for (std::size_t i = 0; i < states_.size(); ++i) states_[i].is_unused = unused[i] != 0;
    const bool is_any_unused = std::find(unused.begin(), unused.end(), char{1}) != unused.end();
    if (is_any_unused || has_warned_) return;
    has_warned_ = true;
    log::warning(
        "ddp.find_unused_parameters is on, but every parameter was used: switching it off saves a walk through "
        "the graph in every step");
  }

  /// What is known not to come needs no waiting.
  void mark_unused() {
    has_marked_unused_ = true;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const bool never_comes = options_.has_static_graph ? states_[i].uses_per_step == 0 : states_[i].is_unused;
      if (never_comes) mark_ready(i);
    }
  }

  void queue_end() {
    if (is_callback_queued_) return;
    is_callback_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
  }

  void end_of_backward() {
    is_callback_queued_ = false;
    const bool is_complete = ready_count_ == states_.size();  // else more backward passes may follow
    if (is_complete && synchronisation_ == Synchronisation::whole) finish();
  }

  void mark_ready(std::size_t i) {
    State& state = states_[i];
    if (state.is_ready) {
      throw ConfigError("ddp: " + cite(i) +
                        " was marked ready twice, but can be marked ready only once in a step: it was used outside of "
                        "forward, or by a backward inside the backward; run the model through the wrapper, or set "
                        "ddp.static_graph");
    }
    move_into_bucket(i);
    state.is_ready = true;
    ++ready_count_;
    if (!is_rebuilt_ && finished_steps_ == 0) arrival_.push_back(i);
    const std::size_t b = buckets_.bucket_of(i);
    if (--pending_[b] == 0 && recorder_ != nullptr) recorder_->bucket_ready(b);
    while (started_ < buckets_.size() && pending_[started_] == 0) start(started_);
  }

  /// Whether `.grad` lies in the bucket.
  bool is_in_bucket(std::size_t i) const {
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    const at::Tensor& view = buckets_.view(i);
    return view.defined() && !gradient.is_sparse() && gradient.data_ptr() == view.data_ptr() &&
           gradient.strides() == view.strides();
  }

  void move_into_bucket(std::size_t i) {
    State& state = states_[i];
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    const at::Tensor& view = buckets_.view(i);
    if (specs_[i].is_sparse) {
      require_sparse(gradient, cite(i));
      return;
    }
    if (!gradient.defined()) {
      const torch::NoGradGuard no_grad;
      view.zero_();
      return;  // stays undefined unless another rank has one
    }
    if (!state.is_used) state.stale = gradient.clone();
    if (is_in_bucket(i)) return;
    if (gradient.is_sparse() || gradient.scalar_type() != view.scalar_type()) {
      throw ConfigError("ddp: the gradient of " + cite(i) + " is " + (gradient.is_sparse() ? "sparse " : "") +
                        std::string(gradient.dtype().name()) + ", expected dense " + std::string(view.dtype().name()));
    }
    copy_values(view, gradient);
    state.has_graph = gradient.requires_grad();
    if (!state.has_graph) gradient = view;
  }

  /// Sparse gradients and a tail alone are reduced without the hook.
  bool is_for_hook(std::size_t b) const {
    return hook_ && !buckets_.bucket(b).is_sparse && !buckets_.bucket(b).slots.empty();
  }

  void start(std::size_t b) {
    const Bucket& bucket = buckets_.bucket(b);
    const bool is_last = b + 1 == buckets_.size();
    ++started_;
    if (is_last) fill_tail();
    if (is_for_hook(b)) completions_[b] = hook_(buckets_.as_hook_sees(b, parameters_));
    if (recorder_ != nullptr) recorder_->bucket_launched(b);
    if (bucket.is_sparse || is_silent_ || (hook_ && !is_last)) return;
    std::byte* memory = buckets_.memory(b);
    std::size_t count = buckets_.reduced_count(b);
    if (hook_) {  // the tail goes alone
      memory += static_cast<std::size_t>(bucket.count) * buckets_.element_bytes(b);
      count = buckets_.tail_slice().count;
    }
    tickets_[b] = synchronisation_ == Synchronisation::sliced
                      ? collectives_.start_reduce_ranges(memory, count, bucket.dtype, mpi::ReduceOp::average)
                      : collectives_.start_all_reduce(memory, count, bucket.dtype, mpi::ReduceOp::average);
  }

  void fill_tail() {
    std::vector<double>& values = tail_;
    values[0] = missing_count_;
    for (std::size_t i = 0; i < states_.size(); ++i) values[1 + i] = states_[i].is_used ? 1 : 0;
    missing_count_ = 0;
    buckets_.write_tail(values);
  }

  void complete() {
    if (synchronisation_ == Synchronisation::sliced) {
      complete_sliced();
    } else {
      complete_whole();
    }
    forget_uses();
  }

  /// Bucket by bucket, so that each wait can be told; otherwise the first range waits for all.
  void await_buckets() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      recorder_->wait_begins(b);
      collectives_.reduce_range(tickets_[b], {}, [](std::size_t, const std::byte*, std::size_t) {});
      recorder_->wait_ends(b);
    }
  }

  void complete_sliced() {
    if (recorder_ != nullptr) await_buckets();
    std::vector<std::byte> tail(buckets_.tail_slice().count * buckets_.element_bytes(buckets_.size() - 1));
    collectives_.reduce_range(
        tickets_.back(), buckets_.tail_slice(), [&](std::size_t begin, const std::byte* values, std::size_t count) {
          const std::size_t element = buckets_.element_bytes(buckets_.size() - 1);
          std::memcpy(tail.data() + (begin - buckets_.tail_slice().begin) * element, values, count * element);
        });
    tail_ = buckets_.read_tail(tail.data());
    is_sliced_ = true;
  }

  void complete_whole() {
    // The tail first, so that nothing is under way should a hook fail.
    if (hook_ && !is_silent_) {
      const StepRecorder::Meeting meeting(recorder_);
      collectives_.wait(tickets_.back());
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (recorder_ != nullptr) recorder_->wait_begins(b);
      if (is_for_hook(b)) take_hook_result(b);
      if (!hook_ && !buckets_.bucket(b).is_sparse) collectives_.wait(tickets_[b]);
      if (recorder_ != nullptr) recorder_->wait_ends(b);
    }
    has_late_tail_ = reads_tail_late();
    if (has_late_tail_) {
      std::fill(tail_.begin(), tail_.end(), 1.0);
      tail_[0] = 0;
    } else {
      tail_ = buckets_.read_tail();
    }
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (specs_[i].is_sparse) {
        const StepRecorder::Meeting meeting(recorder_);
        if (!is_silent_ && has_gradient(i)) average_sparse(parameters_[i].tensor, world_, divisor_);
      } else if (buckets_.view(i).defined()) {
        give(i);
      }
    }
  }

  /// Reading what a GPU has reduced makes the host wait for it. Where every parameter must be used on every rank, that
  /// can be left for the next step: only a mistake shows later.
  bool reads_tail_late() const {
    return collectives_.has_device_buckets() && !hook_ && !options_.finds_unused && !options_.has_static_graph;
  }

  void look_at_late_tail() {
    if (!std::exchange(has_late_tail_, false)) return;
    tail_ = buckets_.read_tail();
    if (tail_[0] != 0) fail(std::exchange(late_missing_, {}));
  }

  void take_hook_result(std::size_t b) {
    const at::Tensor result = completions_[b]();
    completions_[b] = nullptr;
    const GradBucket seen = buckets_.as_hook_sees(b, parameters_);
    if (result.numel() != seen.buffer.numel() || result.scalar_type() != seen.buffer.scalar_type()) {
      throw ConfigError("ddp: the communication hook returned " + std::to_string(result.numel()) + " elements of " +
                        std::string(result.dtype().name()) + " for a bucket of " + std::to_string(seen.buffer.numel()) +
                        " of " + std::string(seen.buffer.dtype().name()));
    }
    if (result.data_ptr() != seen.buffer.data_ptr()) seen.buffer.copy_(result.view({-1}));
  }

  /// Makes `.grad` what the reduction gave, or what it was where no rank used the parameter.
  void give(std::size_t i) {
    State& state = states_[i];
    const at::Tensor& view = buckets_.view(i);
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!has_gradient(i)) {
      if (state.stale.defined()) copy_values(view, state.stale);
      return;
    }
    const torch::NoGradGuard no_grad;
    if (divisor_ != collectives_.world_size()) view.mul_(static_cast<double>(collectives_.world_size()) / divisor_);
    if (state.has_graph) {
      gradient.variable_data().copy_(view);  // keeps the graph of this rank's part: higher orders are not averaged
      warn_of_graph();
    } else {
      gradient = view;
    }
  }

  void warn_of_graph() {
    if (has_warned_of_graph_) return;
    has_warned_of_graph_ = true;
    log::warning("ddp: backward ran with create_graph: first gradients are averaged over ranks, higher ones are not");
  }

  void forget_uses() {
    for (State& state : states_) state.is_used = false;
  }

  /// The first step of a static graph is over: its uses are those of every step.
  void learn() {
    std::vector<std::size_t> order(states_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      const auto rank = [this](std::size_t i) {
        return states_[i].uses_per_step == 0 ? std::numeric_limits<int>::max() : states_[i].last_use;
      };
      return rank(a) < rank(b);
    });
    for (const std::size_t i : order) mark_ready(i);
  }

  [[noreturn]] void fail(const std::string& missing) {
    std::vector<std::string> all(static_cast<std::size_t>(world_.size()));
    if (is_silent_) {
      all[static_cast<std::size_t>(world_.rank())] = missing;
    } else {
      all = world_.all_gather(missing);
    }
    begin_step();
    is_sliced_ = false;
    const std::string text =
        "ddp: the previous reduction cannot be finished: no gradient for " + describe_missing(all) + "; " +
        remedy_of_missing({.has_static_graph = options_.has_static_graph, .finds_unused = options_.finds_unused});
    if (is_silent_) throw ConfigError(text);
    throw_agreed(ExitCode::configuration, text);
  }

  std::vector<NamedParameter> parameters_;
  std::vector<ParameterSpec> specs_;
  ReducerOptions options_;
  mpi::Collectives& collectives_;
  const mpi::Communicator& world_;
  CommHook hook_;
  bool is_silent_ = false;  // of the hook
  std::function<void(const std::vector<Bucket>&)> listener_;
  StepRecorder* recorder_ = nullptr;
  int divisor_;

  GradientBuckets buckets_;
  std::vector<std::size_t> pending_;     // by bucket: gradients still to come
  std::vector<mpi::Ticket> tickets_;     // by bucket
  std::vector<Completion> completions_;  // by bucket, with a hook
  std::vector<State> states_;            // by parameter
  std::vector<char> is_kept_;            // by parameter: its own part is averaged in place
  std::vector<double> tail_;          // average over ranks: missing gradients, then for each parameter if it was used
  std::vector<std::size_t> arrival_;  // of the first step
  bool has_late_tail_ = false;        // tail_ is what is expected; the true one is still to be read
  std::string late_missing_;          // with it: this rank's parameters without a gradient
  std::vector<char> first_unused_;    // of the first step
  std::unique_ptr<AccumulatorHooks> hooks_;
  AutogradGraph graph_;
  std::shared_ptr<void> alive_ = std::make_shared<char>();  // graphs may outlive the reducer
  std::mutex mutex_;                                        // backward may run on one thread per device

  Synchronisation synchronisation_ = Synchronisation::none;  // latched at forward
  bool is_expecting_ = false;
  bool has_begun_ = false;
  bool is_callback_queued_ = false;
  bool has_marked_unused_ = false;
  bool is_rebuilt_ = false;
  bool is_sliced_ = false;
  bool could_be_static_ = true;
  bool has_warned_ = false;
  bool has_warned_of_graph_ = false;
  std::size_t ready_count_ = 0;
  std::size_t started_ = 0;  // buckets
  double missing_count_ = 0;
  std::int64_t finished_steps_ = 0;
  int uses_ = 0;
};

GradientReducer::GradientReducer(std::vector<NamedParameter> parameters, const ReducerOptions& options,
                                 mpi::Collectives& collectives, const mpi::Communicator& world) {
  if (collectives.world_size() == 1) return;  // nothing to average: no hooks, no buckets, no collectives
  impl_ = std::make_unique<Impl>(std::move(parameters), options, collectives, world);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::prepare(Synchronisation synchronisation) {
  if (impl_) impl_->prepare(synchronisation);
}

std::vector<at::Tensor> GradientReducer::watch(std::vector<at::Tensor> outputs) {
  return impl_ ? impl_->watch(std::move(outputs)) : outputs;
}

void GradientReducer::finish() {
  if (impl_) impl_->finish();
}

bool GradientReducer::is_sliced() const noexcept { return impl_ && impl_->is_sliced(); }

bool GradientReducer::has_gradient(std::size_t parameter) const { return impl_ && impl_->has_gradient(parameter); }

void GradientReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit,
                            bool keeps) {
  if (impl_) impl_->visit(parameter, begin, end, visit, keeps);
}

void GradientReducer::release() noexcept {
  if (impl_) impl_->release();
}

void GradientReducer::set_comm_hook(CommHook hook, bool is_silent) {
  if (impl_) impl_->set_comm_hook(std::move(hook), is_silent);
}

bool GradientReducer::supports_slices() const noexcept { return impl_ && impl_->supports_slices(); }

void GradientReducer::on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) {
  if (impl_) impl_->on_new_buckets(std::move(listener));
}

void GradientReducer::contribute_nothing() {
  if (impl_) impl_->contribute_nothing();
}

void GradientReducer::set_divisor(int ranks) {
  if (impl_) impl_->set_divisor(ranks);
}

void GradientReducer::reset() {
  if (impl_) impl_->reset();
}

void GradientReducer::record_into(StepRecorder& recorder) {
  if (impl_) impl_->record_into(recorder);
}

const std::vector<Bucket>& GradientReducer::buckets() const noexcept {
  static const std::vector<Bucket> none;
  return impl_ ? impl_->buckets() : none;
}

BucketLayout GradientReducer::learned_layout() const { return impl_ ? impl_->learned_layout() : BucketLayout(); }

bool GradientReducer::restore_layout(const BucketLayout& layout) { return impl_ && impl_->restore_layout(layout); }

bool GradientReducer::is_rebuilt() const noexcept { return impl_ && impl_->is_rebuilt(); }

bool GradientReducer::could_be_static() const noexcept { return !impl_ || impl_->could_be_static(); }

std::vector<int> GradientReducer::use_counts() const { return impl_ ? impl_->use_counts() : std::vector<int>(); }

}  // namespace lockstep::parallel
