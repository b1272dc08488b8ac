// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <torch/types.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "batch/late_values.hpp"
#include "batch/nvtx_range.hpp"
#include "optim/clip.hpp"
#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_parameters.hpp"

namespace lockstep::optim {

namespace {

void run_backward(const Tensor& loss, double factor) {
  const Tensor weighted = factor == 1 ? loss : loss.mul(factor);
  const batch::NvtxRange range("backward");
  weighted.backward();
}

}  // namespace

OptimWrapper::OptimWrapper(Optimizer optimizer, FlatParameters& parameters, const WrapperOptions& options)
    : optimizer_(std::move(optimizer)), parameters_(&parameters), options_(options) {
  if (options_.accumulation_steps < 1) {
    throw ConfigError("accumulation_steps must be at least 1, not " + std::to_string(options_.accumulation_steps));
  }
  const bool changes_gradients =
      options_.scaler || options_.skips_nonfinite || options_.clip.max_norm > 0 || options_.clip.max_value > 0;
  if (uses_closure() && changes_gradients) {
    throw ConfigError(optimizer_.rule().name +
                      " evaluates a closure; its gradients cannot be clipped, scaled or skipped");
  }
  if (options_.scaler) scaler_.emplace(*options_.scaler);
}

void OptimWrapper::begin_at(std::int64_t done, std::int64_t total) {
  done_ = done;
  step_begin_ = done;
  total_ = total;
  const std::int64_t lost = done % options_.accumulation_steps;
  if (lost == 0) return;
  log::warning("training resumes inside a step: the gradients of the first " + std::to_string(lost) + " of " +
               std::to_string(options_.accumulation_steps) + " micro-batches are lost");
}

bool OptimWrapper::completes_step() const noexcept {
  return (done_ + 1) % options_.accumulation_steps == 0 || done_ + 1 == total_;
}

std::int64_t OptimWrapper::micro_batches_in_step() const {
  const std::int64_t left = total_ % options_.accumulation_steps;
  if (options_.accumulation_steps == 1 || total_ == 0 || done_ < total_ - left) return options_.accumulation_steps;
  if (left > 0) return left;
  throw std::logic_error("micro_batch " + std::to_string(done_ + 1) + " of a training that has " +
                         std::to_string(total_));
}

UpdateReport OptimWrapper::update_with_closure(const std::function<double()>& closure) {
  is_in_closure_ = true;
  const ClosureResult result = optimizer_.step_with_closure([&] {
    done_ = step_begin_;
    return closure();
  });
  is_in_closure_ = false;
  step_begin_ = done_;
  const bool is_finite = std::isfinite(result.grad_norm);
  return {
      .updated = is_finite, .grad_norm = result.grad_norm, .is_finite = is_finite, .evaluations = result.evaluations};
}

UpdateReport OptimWrapper::update_params(const Tensor& loss, std::optional<double> weight,
                                         const std::function<void()>& before_update) {
  double factor = weight ? *weight : 1.0 / static_cast<double>(micro_batches_in_step());
  if (scaler_) {
    settle();
    factor *= scaler_->scale();
  }
  run_backward(loss, factor);
  const bool completes = completes_step();
  ++done_;
  if (!completes) return {};
  if (before_update) before_update();
  if (is_in_closure_) {  // averages them now: collectives of others may follow before they are taken
    finish_without_step();
    return {};
  }
  step_begin_ = done_;
  UpdateReport report;
  if (std::exchange(skips_update_, false)) {
    finish_without_step();
  } else {
    if (options_.skips_nonfinite) settle();
    report = clip_and_step(scaler_ ? scaler_->scale() : 1);
    if (scaler_ && !report.is_pending) scaler_->update(report.is_finite);
  }
  parameters_->drop_gradients();
  return report;
}

void OptimWrapper::finish_without_step() {
  parameters_->finish_gradients();
  const auto skip = [](const GradientPiece&) {};
  if (parameters_->as_tensors() == nullptr) parameters_->visit_gradients(skip, /*is_last=*/false);  // averages wait
}

UpdateReport OptimWrapperDict::update_params(const Tensor& loss, std::optional<double> weight,
                                             const std::function<void()>& before_update) {
  const double scale = scaler() != nullptr ? scaler()->scale() : 1;
  const double factor = scale * (weight ? *weight : 1.0 / static_cast<double>(micro_batches_in_step()));
  const bool completes = completes_step();
  run_backward(loss, factor);
  for (auto& [name, wrapper] : wrappers_) ++wrapper.done_;
  if (!completes) return {};
  if (before_update) before_update();
  UpdateReport all;
  std::vector<double> norms;
  double norm_type = 2;
  bool is_skipped = false;
  for (auto& [name, wrapper] : wrappers_) {
    wrapper.step_begin_ = wrapper.done_;
    if (std::exchange(wrapper.skips_update_, false)) {
      wrapper.finish_without_step();
      is_skipped = true;
      continue;
    }
    const UpdateReport report = wrapper.clip_and_step(scale);
    all.updated = all.updated || report.updated;
    all.is_finite = all.is_finite && report.is_finite;
    if (report.grad_norm) norms.push_back(*report.grad_norm);
    norm_type = wrapper.options_.clip.norm_type;
  }
  if (norms.size() == wrappers_.size()) all.grad_norm = norm_of_parts(norms, norm_type);
  for (auto& [name, wrapper] : wrappers_) {
    if (wrapper.scaler_ && !is_skipped) wrapper.scaler_->update(all.is_finite);
  }
  drop_gradients();
  return all;
}

/// @return  [2] float64: whether the update is void, and the norm; undefined = it is not, and there is none
at::Tensor OptimWrapper::queue_step_tensors(double scale, LiveNumbers* live) {
  parameters_->finish_gradients();
  const Clip& clip = options_.clip;
  at::Tensor is_faulty;
  if (live != nullptr && scaler_) {
    is_faulty = unscale_gradients(*parameters_, live->number([this] { return 1 / scaler_->scale(); }).to(at::kFloat));
  } else if (scaler_ || options_.skips_nonfinite) {
    is_faulty = unscale_gradients(*parameters_, scale);
  }
  std::vector<at::Tensor> norms;
  at::Tensor whole;
  if (clip.max_norm > 0) {
    whole = gradient_norm_tensor(*parameters_, clip.norm_type);
    norms = clip.is_by_group ? gradient_norm_tensors(optimizer_, *parameters_, clip.norm_type)
                             : std::vector<at::Tensor>(optimizer_.groups().size(), whole);
  }
  TensorChange change = change_by(clip, norms);
  if (is_faulty.defined()) {
    change.is_void = change.is_void.defined() ? at::maximum(change.is_void, is_faulty) : is_faulty;
  }
  optimizer_.step_tensors(change, live);
  if (!change.is_void.defined()) return {};
  const at::Tensor is_void = change.is_void.to(at::kDouble);
  return at::stack({is_void, whole.defined() ? whole : is_void});
}

/// @param facts  of queue_step_tensors
UpdateReport OptimWrapper::report_of(const at::Tensor& facts) {
  if (!facts.defined()) return {.updated = true, .grad_norm = std::nullopt};
  if (are_late_) {
    if (!late_places_) late_places_ = std::make_shared<batch::LatePlaces>();
    late_updates_.push_back({.facts = late_places_->queue(facts), .counted = optimizer_.counted()});
    return {.grad_norm = std::nullopt, .is_pending = true};
  }
  const UpdateReport report = outcome_of(facts.cpu());  // one copy
  if (!report.is_finite) optimizer_.uncount_step();
  return report;
}

/// @param facts  in the memory of the host
UpdateReport OptimWrapper::outcome_of(const at::Tensor& facts) const {
  const double* const values = facts.const_data_ptr<double>();
  const bool is_finite = values[0] == 0;
  UpdateReport report{.updated = is_finite, .grad_norm = std::nullopt, .is_finite = is_finite};
  if (options_.clip.max_norm > 0) report.grad_norm = values[1];
  return report;
}

// ---- late reports

void OptimWrapper::set_late_reports(bool are_late) noexcept {
  are_late_ = are_late;
  drop_reports();
}

void OptimWrapper::drop_reports() noexcept { late_updates_.clear(); }

void OptimWrapper::settle() {
  for (LateUpdate& update : late_updates_) settle(update);
}

void OptimWrapper::settle(LateUpdate& update) {
  if (update.report) return;
  update.report = outcome_of(update.facts->take());
  if (!update.report->is_finite) optimizer_.uncount_step(update.counted);
  if (scaler_) scaler_->update(update.report->is_finite);
}

UpdateReport OptimWrapper::take_report() {
  if (late_updates_.empty()) throw std::logic_error("OptimWrapper: no report of an update is pending");
  settle(late_updates_.front());
  const UpdateReport report = *late_updates_.front().report;
  late_updates_.pop_front();
  return report;
}

// ---- a recorded step

void OptimWrapper::record_backward(const Tensor& loss, std::function<double()> weight, LiveNumbers& live) {
  const at::Tensor factor =
      live.number([this, weight = std::move(weight)] { return weight() * (scaler_ ? scaler_->scale() : 1); });
  loss.mul(factor.to(loss.scalar_type())).backward();
}

void OptimWrapper::record_update(LiveNumbers& live) {
  steps_before_ = optimizer_.all_steps();
  recorded_facts_ = std::make_shared<at::Tensor>(queue_step_tensors(1, &live));
  parameters_->drop_gradients();
}

void OptimWrapper::count_recorded_update() {
  if (scaler_ || options_.skips_nonfinite) settle();
  steps_before_ = optimizer_.all_steps();
  optimizer_.count_recorded_step();
}

void OptimWrapper::uncount_recorded_update() {
  if (!steps_before_.empty()) optimizer_.set_all_steps(std::exchange(steps_before_, {}));
}

UpdateReport OptimWrapper::read_recorded_update() {
  const bool completes = completes_step();
  ++done_;
  if (!completes) return {};
  step_begin_ = done_;
  steps_before_.clear();
  const UpdateReport report = report_of(*recorded_facts_);
  if (scaler_ && !report.is_pending) scaler_->update(report.is_finite);
  return report;
}

/// @param scale  factor on the gradients
UpdateReport OptimWrapper::clip_and_step(double scale) {
  const batch::NvtxRange range("update");
  // The host learns the norm that a GPU finds, and whether the update was void, last: when all work is queued.
  if (parameters_->as_tensors() != nullptr) return report_of(queue_step_tensors(scale, nullptr));
  const Clip& clip = options_.clip;
  const std::size_t groups = optimizer_.groups().size();
  const double unscale = 1 / scale;
  UpdateReport report;
  std::vector<double> norms(groups);
  if (clip.max_norm > 0) {
    parameters_->finish_gradients();
    if (clip.is_by_group) {
      norms = gradient_norms_by_group(optimizer_, *parameters_, clip.norm_type, unscale);
      report.grad_norm = norm_of_parts(norms, clip.norm_type);
    } else {
      report.grad_norm = gradient_norm(*parameters_, clip.norm_type, unscale);
      norms.assign(groups, *report.grad_norm);
    }
    report.is_finite = std::isfinite(*report.grad_norm);
  } else if (scaler_ || options_.skips_nonfinite) {
    parameters_->finish_gradients();
    report.is_finite = are_gradients_finite(*parameters_);
  }
  if (!report.is_finite) return report;
  std::vector<GradientChange> changes;
  for (const double norm : norms) {
    changes.push_back(change_by(clip, norm));
    changes.back().factor *= unscale;
  }
  optimizer_.step_by_group(changes);
  report.updated = true;
  return report;
}

std::vector<double> OptimWrapper::values(std::string_view option) const {
  std::vector<double> values;
  for (const ParamGroup& group : optimizer_.groups()) {
    const Options& options = group.options;
    auto found = options.find(std::string(option));
    if (found == options.end() && option == "momentum") found = options.find("beta1");
    if (found == options.end() && option != "momentum" && option != "base_lr") {
      throw ConfigError("the optimizer " + optimizer_.rule().name + " has no option '" + std::string(option) + "'");
    }
    values.push_back(option == "base_lr" ? group.base_lr : found != options.end() ? found->second : 0);
  }
  return values;
}

// ---- several optimizers

OptimWrapper& OptimWrapperDict::add(const std::string& name, OptimWrapper wrapper) {
  const auto [place, is_new] = wrappers_.emplace(name, std::move(wrapper));
  if (!is_new) throw ConfigError("two optimizers have the name '" + name + "'");
  return place->second;
}

const OptimWrapper& OptimWrapperDict::at(const std::string& name) const {
  const auto found = wrappers_.find(name);
  if (found != wrappers_.end()) return found->second;
  std::string known;
  for (const auto& [each, wrapper] : wrappers_) known += (known.empty() ? "" : ", ") + each;
  throw ConfigError("there is no optimizer named '" + name + "'; the names are: " + known);
}

OptimWrapper& OptimWrapperDict::at(const std::string& name) {
  return const_cast<OptimWrapper&>(std::as_const(*this).at(name));
}

const GradScaler* OptimWrapperDict::scaler() const noexcept {
  const GradScaler* smallest = nullptr;
  for (const auto& [name, wrapper] : wrappers_) {
    const GradScaler* const own = wrapper.scaler();
    if (own != nullptr && (smallest == nullptr || own->scale() < smallest->scale())) smallest = own;
  }
  return smallest;
}

void OptimWrapperDict::begin_at(std::int64_t done, std::int64_t total) {
  for (auto& [name, wrapper] : wrappers_) wrapper.begin_at(done, total);
}

void OptimWrapperDict::drop_gradients() {
  for (auto& [name, wrapper] : wrappers_) wrapper.parameters().drop_gradients();
}

void OptimWrapperDict::skip_update() noexcept {
  for (auto& [name, wrapper] : wrappers_) wrapper.skip_update();
}

void OptimWrapperDict::reset() noexcept {
  for (auto& [name, wrapper] : wrappers_) wrapper.reset();
}

std::map<std::string, std::vector<double>> OptimWrapperDict::values(std::string_view option) const {
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, wrapper] : wrappers_) values[name + "." + std::string(option)] = wrapper.values(option);
  return values;
}

}  // namespace lockstep::optim
