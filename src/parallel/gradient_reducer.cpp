// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/gradient_reducer.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace lockstep::parallel {

namespace {

/// Room behind the last bucket's gradients for the count of parameters that got none on this rank.
constexpr std::int64_t kTailBytes = 64;

constexpr std::size_t kNamesShown = 10;

using NodeHandle = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// Calls `action` after a gradient accumulator has run.
class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> action) : action_(std::move(action)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    action_();
    return outputs;
  }

 private:
  std::function<void()> action_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// "'a' on ranks 0, 2; 'b' on rank 1"
std::string describe(const std::vector<std::string>& missing_by_rank) {
  std::vector<std::string> names;  // in order of first mention
  std::map<std::string, std::string> ranks;
  for (std::size_t rank = 0; rank < missing_by_rank.size(); ++rank) {
    for (const std::string& name : lines_of(missing_by_rank[rank])) {
      std::string& list = ranks[name];
      if (list.empty()) names.push_back(name);
      list += (list.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    const std::string& list = ranks[names[i]];
    const bool is_one = list.find(',') == std::string::npos;
    text += (i == 0 ? "'" : "; '") + names[i] + "' on rank" + (is_one ? " " : "s ") + list;
  }
  if (names.size() > kNamesShown) text += "; and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

}  // namespace

class GradientReducer::Impl {
 public:
  Impl(std::vector<NamedParameter> parameters, std::vector<Bucket> buckets, mpi::Collectives& collectives,
       const mpi::Communicator& world)
      : parameters_(std::move(parameters)), buckets_(std::move(buckets)), collectives_(collectives), world_(world) {
    bucket_of_.resize(parameters_.size());
    views_.resize(parameters_.size());
    is_ready_.resize(parameters_.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) allocate(b);
  }

  ~Impl() {
    for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
  }

  void install_hooks() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // The parameter itself holds its accumulator weakly: without this reference the hook would vanish.
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i].tensor));
      hooks_.push_back(
          accumulators_.back()->add_post_hook(std::make_unique<AfterAccumulation>([this, i] { on_gradient(i); })));
    }
  }

  void prepare(bool synchronise) {
    if (is_expecting_ && ready_count_ > 0) finish();
    reset();
    is_expecting_ = synchronise;
  }

  void reset() {
    // Collectives that were started must be taken back in, or the next ones would not match those of the peers.
    for (; awaited_ < tickets_.size(); ++awaited_) collectives_.wait(tickets_[awaited_]);
    is_expecting_ = false;
    is_callback_queued_ = false;
    ready_count_ = 0;
    awaited_ = 0;
    tickets_.clear();
    std::fill(is_ready_.begin(), is_ready_.end(), char{0});
    for (std::size_t b = 0; b < buckets_.size(); ++b) pending_[b] = buckets_[b].slots.size();
  }

  void finish() {
    if (!is_expecting_) return;
    is_expecting_ = false;
    std::string missing;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (is_ready_[i] == 0) {
        missing += parameters_[i].name + "\n";
        views_[i].zero_();
      }
    }
    missing_count_ = parameters_.size() - ready_count_;
    while (tickets_.size() < buckets_.size()) start(tickets_.size());
    for (; awaited_ < tickets_.size(); ++awaited_) collectives_.wait(tickets_[awaited_]);
    if (tail_value() == 0) return;
    const std::string description = describe(world_.all_gather(missing));
    reset();
    throw_agreed(ExitCode::configuration,
                 "ddp: no gradient for " + description +
                     "; every parameter must take part in the loss on every rank, or have requires_grad switched off");
  }

 private:
  void allocate(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    const std::size_t element = size_of(bucket.dtype);
    const bool is_last = b + 1 == buckets_.size();
    const std::size_t bytes = static_cast<std::size_t>(bucket.count) * element;
    memory_.push_back(collectives_.allocate_bucket(bytes + (is_last ? kTailBytes : 0)));
    for (const Slot& slot : bucket.slots) {
      bucket_of_[slot.parameter] = b;
      std::byte* const place = memory_.back().bytes.data() + static_cast<std::size_t>(slot.offset) * element;
      views_[slot.parameter] = view_of(place, parameters_[slot.parameter].tensor, memory_.back().owner);
    }
    pending_.push_back(bucket.slots.size());
  }

  void on_gradient(std::size_t i) {
    if (!is_expecting_) return;
    if (is_ready_[i] != 0) {
      throw ConfigError("ddp: '" + parameters_[i].name +
                        "' got its gradient twice in one step; run forward and backward once per synchronised step, or "
                        "use no_sync for all but the last");
    }
    if (!is_callback_queued_) {
      is_callback_queued_ = true;
      torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
    }
    move_into_bucket(i);
    is_ready_[i] = 1;
    ++ready_count_;
    --pending_[bucket_of_[i]];
    while (tickets_.size() < buckets_.size() && pending_[tickets_.size()] == 0) start(tickets_.size());
  }

  void end_of_backward() {
    is_callback_queued_ = false;
    if (ready_count_ == parameters_.size()) finish();  // else more backward passes may follow
  }

  void move_into_bucket(std::size_t i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    at::Tensor& view = views_[i];
    if (!gradient.defined()) {
      view.zero_();
    } else if (gradient.data_ptr() != view.data_ptr()) {
      if (gradient.scalar_type() != view.scalar_type()) {
        throw ConfigError("ddp: the gradient of '" + parameters_[i].name + "' is " +
                          std::string(gradient.dtype().name()) + ", its parameter " + std::string(view.dtype().name()));
      }
      if (gradient.strides() == view.strides()) {
        std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
      } else {
        const torch::NoGradGuard no_grad;
        view.copy_(gradient);
      }
    }
    gradient = view;
  }

  void start(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    const bool is_last = b + 1 == buckets_.size();
    if (is_last) set_tail(static_cast<double>(missing_count_));
    const std::int64_t count = bucket.count + (is_last ? 1 : 0);
    tickets_.push_back(collectives_.start_all_reduce(memory_[b].bytes.data(), static_cast<std::size_t>(count),
                                                     bucket.dtype, mpi::ReduceOp::average));
    if (is_last) missing_count_ = 0;
  }

  at::Tensor tail() const {
    const Bucket& last = buckets_.back();
    std::byte* const place = memory_.back().bytes.data() + static_cast<std::size_t>(last.count) * size_of(last.dtype);
    return at::from_blob(place, {}, views_[last.slots.front().parameter].options());
  }
  void set_tail(double value) { tail().fill_(value); }
  double tail_value() const { return tail().item<double>(); }

  std::vector<NamedParameter> parameters_;
  std::vector<Bucket> buckets_;
  mpi::Collectives& collectives_;
  const mpi::Communicator& world_;

  std::vector<mpi::BucketMemory> memory_;  // by bucket
  std::vector<std::size_t> pending_;       // by bucket: gradients still to come
  std::vector<std::size_t> bucket_of_;     // by parameter
  std::vector<at::Tensor> views_;          // by parameter
  std::vector<char> is_ready_;             // by parameter
  std::vector<NodeHandle> accumulators_;
  std::vector<std::uintptr_t> hooks_;

  bool is_expecting_ = false;  // latched at forward
  bool is_callback_queued_ = false;
  std::size_t ready_count_ = 0;
  std::size_t missing_count_ = 0;
  std::vector<mpi::Ticket> tickets_;  // of buckets 0, 1, ... as far as started
  std::size_t awaited_ = 0;
};

GradientReducer::GradientReducer(std::vector<NamedParameter> parameters, std::vector<Bucket> buckets,
                                 mpi::Collectives& collectives, const mpi::Communicator& world) {
  if (collectives.world_size() == 1) return;  // nothing to average: no hooks, no buckets, no collectives
  impl_ = std::make_unique<Impl>(std::move(parameters), std::move(buckets), collectives, world);
  impl_->install_hooks();
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::prepare(bool synchronise) {
  if (impl_) impl_->prepare(synchronise);
}

void GradientReducer::finish() {
  if (impl_) impl_->finish();
}

void GradientReducer::reset() {
  if (impl_) impl_->reset();
}

}  // namespace lockstep::parallel
