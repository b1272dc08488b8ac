// SPDX-License-Identifier: BSD-3-Clause
#include "embed/online_samples.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <string>

#include "engine/settings/agreed.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/setup/composition.hpp"

namespace lockstep::embed {

namespace {

std::int64_t channels_of(const Section& data, const char* shape) {
  const std::vector<std::int64_t> sizes = data.integers(shape);
  return sizes.empty() ? 0 : sizes.front();
}

}  // namespace

OnlineSamples::OnlineSamples(const mpi::Communicator& world, const Sections& sections)
    : world_(world),
      settings_(engine::agreed(world, [&] { return engine::BufferSettings::from(sections.at("buffer")); })),
      layout_(engine::agreed(world, [&] { return engine::training_layout(sections, world); })),
      are_saved_(sections.at("ckpt").boolean("buffer")),
      buffers_(settings_, layout_, engine::RunSettings::from(sections.at("run")).seed, world.rank()) {
  if (!settings_.has_statistics) return;
  const Section& data = sections.at("data");
  const bool has_lanes = layout_.lanes > 0;
  statistics_ = std::make_unique<RunningStatistics>(RunningStatistics::StatisticsOptions{
      .parts = has_lanes ? layout_.micro_batches : 1,
      .all_parts = has_lanes ? layout_.lanes : world.size(),
      .first = has_lanes ? layout_.first_lane : world.rank(),
      .inputs = channels_of(data, "input_shape"),
      .targets = data.text("kind") == "regression" ? channels_of(data, "target_shape") : 0,
      .frozen_after = settings_.frozen_after});
}

std::vector<std::shared_ptr<engine::Stateful>> OnlineSamples::states(
    const std::function<mpi::Collectives&()>& collectives) {
  std::vector<std::shared_ptr<engine::Stateful>> states;
  if (are_saved_) states.push_back(buffers_.state(world_));
  if (statistics_) states.push_back(statistics_->state(collectives));
  return states;
}

void OnlineSamples::push(const SampleForm& form, const batch::Batch& given, std::optional<std::int64_t> lane,
                         at::ScalarType type) {
  batch::Batch kept = given.share();
  for (const auto& [name, value] : given.values()) {
    const at::Tensor& tensor = value.as<at::Tensor>();
    if (tensor.is_floating_point()) kept.set(name, tensor.to(type));
  }
  const std::vector<std::vector<std::int64_t>> rows = buffers_.deal(given.size(), lane);
  buffers_.push(kept, rows);
  if (!statistics_) return;
  for (std::size_t i = 0; i < rows.size(); ++i) statistics_->add(i, form.selected(given, rows[i]));
}

void OnlineSamples::count(const std::vector<batch::Batch>& micro_batches) {
  if (!statistics_) return;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) statistics_->add(layout_.lanes > 0 ? i : 0, micro_batches[i]);
}

void OnlineSamples::normalize(mpi::Collectives& collectives, models::Model& model) {
  if (statistics_) statistics_->update(collectives, model);
}

void OnlineSamples::require_filled(std::int64_t kept) const {
  if (is_filled(kept)) return;
  throw_agreed(ExitCode::data, "the buffers of all ranks have " + std::to_string(kept) + " samples; " +
                                   settings_.min.cite + " = " + std::to_string(settings_.min.value) +
                                   " are needed before the first step");
}

}  // namespace lockstep::embed
