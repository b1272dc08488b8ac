// SPDX-License-Identifier: BSD-3-Clause
#include "embed/averaged_model.hpp"

#include <torch/types.h>

#include <vector>

#include "embed/model_state.hpp"
#include "engine/evaluation/evaluation.hpp"

namespace lockstep::embed {

void AveragedModel::update(const engine::Composition& trained, const Sections& sections,
                           const engine::Registry& registry, const Task& task, std::int64_t step) {
  if (!model_) {
    model_ = std::make_unique<engine::WrappedModel>(engine::make_wrapped_model(
        trained.resources, sections, registry, task, {.purpose = engine::Purpose::prediction, .is_loaded = true}));
    wrapper().model().eval();
  }
  const std::vector<engine::NamedTensor> copies = state_of(wrapper().model());
  engine::with_average(*trained.model.wrapper, trained.updates.average.get(), [&] {
    const torch::NoGradGuard no_grad;
    const std::vector<engine::NamedTensor> now = state_of(trained.model.wrapper->model());
    for (std::size_t i = 0; i < now.size(); ++i) copies[i].tensor.copy_(now[i].tensor);
  });
  step_ = step;
}

}  // namespace lockstep::embed
