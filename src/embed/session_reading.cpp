// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include "core/text/text.hpp"
#include "embed/predictions.hpp"
#include "embed/session_impl.hpp"

namespace lockstep {

bool Session::Impl::uses_average() const {
  return training_ && training_->composition().updates.average != nullptr &&
         given_.config.section("eval").text("weights") != "trained";
}

std::int64_t Session::Impl::weights_step() const {
  if (loaded_) return loaded_->step;
  return uses_average() ? averaged_.step() : step();
}

parallel::DistributedDataParallel& Session::Impl::predictor() const {
  if (uses_average() && !averaged_.is_there()) {
    throw ConfigError(
        "predictions use the average of the weights (ema.kind), and there is none yet; call update on all ranks that "
        "train first, or set eval.weights=trained");
  }
  parallel::DistributedDataParallel& model = uses_average() ? averaged_.wrapper() : wrapper();
  if (model.has_collective_forward()) {
    throw ConfigError(
        "ranks cannot predict alone, because no rank has all parameters (strategy.stage=3) or forward passes "
        "communicate (ddp.sync_batch_norm); open another run with purpose=predict and from=RUN");
  }
  if (weights_step() < 0) throw ConfigError("this rank has no weights yet; call update first");
  return model;
}

SampleTensors Session::Impl::readable(SampleTensors inputs) const {
  if (streams_->gpu() == nullptr) return inputs;
  for (auto& [name, tensor] : inputs) {
    if (tensor.defined() && tensor.is_cpu() && tensor.is_pinned()) {
      tensor = tensor.to(streams_->device(), /*non_blocking=*/false);
    }
  }
  return inputs;
}

SampleTensors Session::Impl::predict(const SampleTensors& inputs) {
  require_open();
  const embed::OwnThreads threads(threads_);
  parallel::DistributedDataParallel& model = predictor();
  streams_->use(inputs);
  return embed::predictions_of(model, *form_, readable(inputs));
}

void Session::Impl::predict_into(const SampleTensors& inputs, const SampleTensors& outputs) {
  streams_->use(outputs);
  const SampleTensors computed = predict(inputs);
  for (const auto& [name, target] : outputs) embed::write(name, target, embed::output_of(computed, name));
}

std::int64_t Session::Impl::parameter_count() const {
  return training_ ? training_->composition().model.parameter_count : loaded_->model.parameter_count;
}

std::vector<std::string> Session::Impl::parameter_names() const {
  std::vector<std::string> names;
  for (const engine::NamedTensor& each : state()) names.push_back(each.name);
  return names;
}

at::Tensor Session::Impl::parameter(const std::string& name) const {
  at::Tensor copy = find(name).tensor.detach().clone();
  streams_->hand_out(copy);
  return copy;
}

void Session::Impl::read_parameter(const std::string& name, const at::Tensor& values) const {
  const at::Tensor parameter = find(name).tensor.detach();
  streams_->use(name, values);
  embed::write(name, values, parameter);
}

engine::NamedTensor Session::Impl::find(const std::string& name) const {
  require_open();
  std::vector<std::string> names;
  for (engine::NamedTensor& each : state()) {
    if (each.name == name) return std::move(each);
    names.push_back(each.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw ConfigError("the model has no parameter or buffer '" + name + "'" +
                    (nearest.empty() ? "" : "; do you mean '" + nearest + "'?"));
}

std::pair<embed::LetterKind, embed::Letter> Session::Impl::weights() const {
  try {
    embed::Letter letter{.number = weights_step()};
    for (const engine::NamedTensor& each : embed::state_of(predictor().model())) {
      letter.tensors.emplace_back(each.name, each.tensor.detach().cpu());
    }
    return {embed::LetterKind::weights, std::move(letter)};
  } catch (const ConfigError& refusal) {
    return {embed::LetterKind::refusal, {.text = message_of(refusal)}};
  }
}

void Session::Impl::take_weights() {
  require_open();
  const embed::Letter letter = producer_->request_weights();
  const torch::NoGradGuard no_grad;
  const std::vector<engine::NamedTensor> mine = state();
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i].tensor.copy_(letter.tensors.at(i).second);
  loaded_->step = letter.number;
}

}  // namespace lockstep
