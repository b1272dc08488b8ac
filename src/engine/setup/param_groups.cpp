// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/param_groups.hpp"

#include <algorithm>

#include "core/text/text_stream.hpp"
#include "engine/settings/batch_layout.hpp"
#include "models/script/parameter_roles.hpp"

namespace lockstep::engine {

namespace {

std::string sentence_of(const optim::LrScale& scale, double lr) {
  if (scale.base_batch == 0) return "";
  TextWriter text;
  text << "effective batch " << scale.batch << ", optim.base_batch_size " << scale.base_batch << ": lr " << lr << " -> "
       << lr * scale.factor();
  return text.str();
}

}  // namespace

std::vector<optim::ParameterInfo> describe_parameters(const models::Model& model) {
  std::vector<optim::ParameterInfo> parameters;
  for (const models::ParameterRole& role : models::parameter_roles(model)) {
    parameters.push_back({.name = role.name,
                          .dims = role.tensor.dim(),
                          .count = role.tensor.numel(),
                          .is_norm = role.kind == models::LayerKind::norm,
                          .is_depthwise = role.kind == models::LayerKind::depthwise,
                          .is_offset = role.is_offset,
                          .is_frozen = !role.tensor.requires_grad(),
                          .same_as = role.same_as,
                          .layers_after = role.layers_after,
                          .is_undecayed = role.is_undecayed});
  }
  return parameters;
}

GroupPlan plan_groups(const Section& optim, const Section& train, const optim::Rule& rule,
                      const std::vector<optim::ParameterInfo>& parameters, int world_size) {
  const BatchSettings batch = BatchSettings::from(train);
  const std::int64_t per_step = batch.global_batch_size.value;
  const std::int64_t bound = batch.micro_batch.value;
  const optim::LrScale scale =
      optim::lr_scale(optim, per_step, bound == 0 ? per_step : std::min(per_step, bound * world_size));
  optim::ParameterGroups built = optim::ParamGroupBuilder(optim, rule).build(parameters);
  optim::scale_lr(built.groups, scale);
  return {.groups = std::move(built.groups),
          .remarks = std::move(built.remarks),
          .unmatched = std::move(built.unmatched),
          .scaling = sentence_of(scale, optim.real("lr"))};
}

}  // namespace lockstep::engine
