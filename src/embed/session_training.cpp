// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/run_view.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string_view>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "core/text/duration.hpp"
#include "embed/session_impl.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep {

namespace {

using embed::OwnThreads;
using embed::SessionCall;

/// The names of values in every record of a training.
constexpr std::array<std::string_view, 11> kOwnValues = {
    "step",          "epoch",       "samples",          "loss",           "lr", "grad_norm", "loss_scale",
    "skipped_steps", "evaluations", "received_samples", "dropped_samples"};

constexpr std::chrono::milliseconds kNap(1);

}  // namespace

void Session::Impl::push(const SampleTensors& samples, std::optional<std::int64_t> lane) {
  require_open();
  streams_->use(samples);
  const batch::Batch given = form_->batch_of(embed::on_host(samples), /*has_targets=*/true);
  if (producer_) return producer_->push(*form_, given, lane);
  keep(given, lane);
}

void Session::Impl::keep(const batch::Batch& samples, std::optional<std::int64_t> lane) {
  require_training();
  online_->push(*form_, samples, lane, training_->composition().model.precision.parameters);
}

std::pair<std::int64_t, std::int64_t> Session::Impl::lanes() const {
  if (!training_) return {0, producer_ ? producer_->lanes() : 0};
  const engine::BatchLayout& layout = trainer().view().data.layout();
  return {layout.first_lane, layout.lanes > 0 ? layout.micro_batches : 0};
}

double Session::Impl::train_buffer(std::int64_t steps) {
  const OwnThreads threads(threads_);
  // The samples of producers are received before each step.
  const std::int64_t calls = receiver_ ? std::max<std::int64_t>(steps, 1) : 1;
  double loss = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t call = 0; call < calls; ++call) {
    const std::int64_t samples = await_samples(steps, /*reports=*/call == 0);
    normalize();
    for (std::int64_t i = 0; i < steps / calls; ++i) {
      std::vector<batch::Batch> batches;
      for (batch::ValueMap& values : online_->buffers().draw(step()))
        batches.push_back(form_->drawn(std::move(values)));
      loss = take_step(std::move(batches), samples);
    }
  }
  return loss;
}

double Session::Impl::train(const SampleSource& samples) {
  batch::Batch batch;
  const OwnThreads threads(threads_);
  const std::int64_t all = enter(SessionCall::train, [&]() -> embed::SessionNumbers {
                             receive();
                             const SampleTensors given = streams_->outside(samples);
                             streams_->use(given);
                             batch = form_->batch_of(given, /*has_targets=*/true);
                             return {.samples = batch.size()};
                           }).samples;
  if (all == 0) throw_agreed(ExitCode::data, "no rank has samples, so that there is nothing to train");
  const std::int64_t parts = trainer().view().data.layout().micro_batches;
  std::vector<batch::Batch> batches;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = batch.size() * part / parts;
    batches.push_back(form_->rows_of(batch, begin, batch.size() * (part + 1) / parts - begin));
  }
  online_->count(batches);
  normalize();
  return take_step(std::move(batches), all);
}

void Session::Impl::receive() {
  if (!receiver_) return;
  receiver_->receive(
      [this](const SampleTensors& samples, std::optional<std::int64_t> lane) {
        batch::ValueMap values;
        for (const auto& [name, tensor] : samples) values[name] = tensor;
        keep(form_->drawn(std::move(values)), lane);
      },
      [this] { return weights(); });
}

embed::SessionNumbers Session::Impl::numbers_of_buffers(std::int64_t steps) const {
  embed::SessionNumbers mine{
      .samples = online_->buffers().samples_per_step(), .kept = online_->buffers().size(), .steps = steps};
  if (!receiver_) return mine;
  mine.producers = receiver_->open();
  mine.received = receiver_->received();
  mine.dropped = receiver_->dropped();
  return mine;
}

std::int64_t Session::Impl::await_samples(std::int64_t steps, bool reports) {
  const SteadyClock::time_point start = SteadyClock::now();
  for (;;) {
    const embed::SessionNumbers all = enter(SessionCall::train_buffer, [&] {
      if (steps < 0) throw DataError(std::to_string(steps) + " steps: the number is negative");
      receive();
      if (receiver_ && reports) receiver_->report_fault();
      if (receiver_ && seconds_since(start) > timeout_s_) {
        throw CommError("producers have sent too few samples for " + seconds_text(timeout_s_) +
                        " (comm.timeout_s): the first step needs buffer.min");
      }
      return numbers_of_buffers(steps);
    });
    if (receiver_) note(all, reports);
    if (steps == 0) return all.samples;
    if (online_->is_filled(all.kept) || !receiver_ || all.producers == 0) {
      online_->require_filled(all.kept);
      return all.samples;
    }
    std::this_thread::sleep_for(kNap);
  }
}

void Session::Impl::note(const embed::SessionNumbers& all, bool reports) {
  latest_ = all;
  trainer().view().events.put("received_samples", static_cast<double>(all.received), {.is_smoothed = false});
  trainer().view().events.put("dropped_samples", static_cast<double>(all.dropped), {.is_smoothed = false});
  if (reports) receiver_->require_producers(all.producers, all.received, all.dropped);
}

void Session::Impl::normalize() {
  if (online_->has_statistics()) running([&] { online_->normalize(collectives(), wrapper().model()); });
}

double Session::Impl::take_step(std::vector<batch::Batch> batches, std::int64_t all) {
  engine::StepInput input{.next = {}, .samples = all};
  for (batch::Batch& batch : batches) {
    input.counts.push_back(batch.size());
    if (batch.size() == 0) batch = form_->filler(batch);
  }
  std::size_t next = 0;
  input.next = [&] { return std::move(batches.at(next++)); };
  loss_ = std::numeric_limits<double>::quiet_NaN();
  gradient_norm_.reset();
  models::Model& model = wrapper().model();
  if (!model.is_training()) model.train();
  running([&] { trainer().step(input); });
  return loss_;
}

void Session::Impl::update() {
  const OwnThreads threads(threads_);
  if (producer_) return take_weights();
  enter(SessionCall::update, [&] {
    receive();
    return embed::SessionNumbers();
  });
  if (!uses_average()) return;
  running([&] { averaged_.update(training_->composition(), given_.config.sections(), *registry_, task_, step()); });
}

std::string Session::Impl::save() {
  const OwnThreads threads(threads_);
  enter(SessionCall::save, [&] {
    require_folder();
    return embed::SessionNumbers();
  });
  running([&] { trainer().view().saves.save(); });
  return checkpoints::checkpoint_of(folder_->checkpoints(), step());
}

void Session::Impl::resume(const std::string& from) {
  const OwnThreads threads(threads_);
  enter(SessionCall::resume, [&] {
    require_folder();
    return embed::SessionNumbers();
  });
  try {
    training_->resume(from);
  } catch (const CheckpointError& error) {
    if (!error.is_agreed()) end(std::current_exception(), &error);
    throw;
  } catch (const std::exception& error) {
    end(std::current_exception(), &error);
    throw;
  }
}

void Session::Impl::metric(const std::string& name, double value) {
  require_training();
  if (std::ranges::find(kOwnValues, name) != kOwnValues.end() || name.starts_with("lr/")) {
    throw ConfigError("the records of the run have a value '" + name + "' of their own; choose another name");
  }
  trainer().view().events.put(name, value, {.is_smoothed = false});
}

void Session::Impl::set_parameter(const std::string& name, const std::function<at::Tensor()>& make_values) {
  const OwnThreads threads(threads_);
  engine::NamedTensor target;
  at::Tensor values;
  enter(SessionCall::set_parameter, [&] {
    require_training();
    if (training_->composition().model.param_dtype.is_half()) {
      throw ConfigError("with train.param_dtype, parameters have copies of higher precision and cannot be replaced");
    }
    target = find(name);
    values = streams_->outside(make_values);
    streams_->use(name, values);
    if (!values.defined() || values.sizes() != target.tensor.sizes()) {
      throw DataError("the parameter '" + name + "' has the shape " + batch::shape_text(target.tensor) +
                      ", but the given values " + (values.defined() ? batch::shape_text(values) : "none"));
    }
    return embed::SessionNumbers();
  });
  running([&] {
    at::Tensor copy = values.to(target.tensor.device(), target.tensor.scalar_type()).contiguous().clone();
    collectives().broadcast(parallel::bytes_of(copy), 0);
    const torch::NoGradGuard no_grad;
    engine::write_parameters(wrapper().store(), {target},
                             [&copy](const engine::NamedTensor& each) { each.tensor.copy_(copy); });
  });
}

}  // namespace lockstep
