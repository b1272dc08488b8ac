// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/model.hpp"

#include <lockstep/models/layers.hpp>

#include <algorithm>

namespace lockstep::engine {

parallel::DdpOptions wrapper_options(const Sections& sections, const Precision& precision, std::int64_t lanes,
                                     const StrategyRow& row, const StrategySettings& settings,
                                     const mpi::Collectives& collectives,
                                     const std::vector<parallel::CommHookRow>& comm_hooks) {
  parallel::DdpOptions options = parallel::DdpOptions::from(sections.at("ddp"), collectives, comm_hooks);
  options.lanes = static_cast<int>(lanes);
  options.hosts = mpi::CommSettings::from(sections.at("comm")).hosts;
  options.autocast = precision.autocast;
  options.recompute = models::ModelSettings::from(sections.at("model")).recompute;
  if (row.lay_out != nullptr) row.lay_out(settings, options);
  return options;
}

bool has_batch_norm(const models::Model& model) {
  const auto modules = model.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<const models::BatchNorm*>(module.get()) != nullptr;
  });
}

std::vector<optim::ModelAverage::NamedBuffer> buffers_in(const models::Model& model) {
  std::vector<optim::ModelAverage::NamedBuffer> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

}  // namespace lockstep::engine
