// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/run_state.hpp"

#include <lockstep/core/error.hpp>

#include <functional>
#include <utility>

#include "engine/loop/trainer.hpp"
#include "engine/resume/components.hpp"
#include "engine/saving/read_agreed.hpp"
#include "engine/saving/replicas.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/renames.hpp"
#include "mpi/shared/device_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

/// Those that take their state from a checkpoint with these options.
Components restored_components(Trainer& trainer, const RestoreOptions& options) {
  Components components = run_components(trainer.run());
  std::erase_if(components, [&](const auto& component) { return !component->is_restored(options); });
  return components;
}

/// @return  what does not fit, and need not
/// @throws CheckpointError  what does not fit
std::vector<std::string> compare(const Components& components, const Archive& archive, const RestoreOptions& options) {
  CompatibilityReport report(archive);
  for (const auto& component : components) component->compare(archive, options, report);
  std::vector<std::string> passed_over;
  if (options.is_partial) passed_over = report.accept(MismatchKind::model);
  report.throw_if_any(MismatchKind::model);  // reported alone, because it often causes the other mismatches
  report.throw_if_any();
  return passed_over;
}

/// The same arrival, but what an aborted collective left behind is no state of the run.
std::function<void()> sound_arrival(std::function<void()> arrival, const mpi::Collectives& collectives) {
  if (!arrival) return {};
  return [arrival = std::move(arrival), &collectives] {
    arrival();
    const mpi::DeviceCollectives* const device = mpi::on_device(collectives);
    if (device != nullptr && device->has_failed())
      throw CommError("the communication failed while the state was copied");
  };
}

}  // namespace

Archive capture(Trainer& trainer, const std::string& config_ini, bool is_writer, const CapturedParts& parts,
                DeviceCopies* copies) {
  RunView& view = trainer.view();
  trainer.run().hooks.each(&Hook::before_save, view);
  require_equal_replicas(view.world, view.wrapper.store());
  DeviceCopies own;
  if (copies == nullptr) copies = &own;
  copies->begin();
  Archive archive;
  const StateWriter writer(archive, is_writer, copies);
  for (const auto& component : captured_components(trainer.run(), config_ini, parts)) component->capture(writer);
  archive.set_arrival(sound_arrival(copies->arrival(), view.collectives));
  return archive;
}

checkpoints::RestoreTargets restore_targets(Trainer& trainer, const RestoreOptions& options) {
  const parallel::ParameterStore& store = trainer.view().wrapper.store();
  if (options.is_partial || !options.renames.empty() || store.shards() != nullptr) return {};
  checkpoints::RestoreTargets shared;
  checkpoints::RestoreTargets own;
  for (const auto& component : restored_components(trainer, options)) {
    component->visit_arrays([&](const LocalState& local) {
      if (!local.tensor.is_cpu() || !local.tensor.is_contiguous()) return;
      auto* const memory = static_cast<std::byte*>(local.tensor.mutable_data_ptr());
      (local.is_own ? own : shared)[local.path] = {.memory = {memory, local.tensor.nbytes()}};
    });
  }
  divide_reading(shared, store.node_ranks());
  shared.merge(own);
  return shared;
}

std::vector<std::string> restore(Trainer& trainer, const Archive& given, const RestoreOptions& options) {
  const mpi::Communicator& world = trainer.view().world;
  const Components components = restored_components(trainer, options);
  Archive archive;
  std::vector<std::string> passed_over;
  world.all_or_throw([&] {
    given.await_arrival();
    archive = renamed(given, options.renames);
    passed_over = compare(components, archive, options);
  });
  for (const auto& component : components) world.all_or_throw([&] { component->restore(archive, options); });
  trainer.view().wrapper.store().read_whole([&] {
    world.all_or_throw([&] {
      for (const auto& component : components) {
        component->visit_arrays([&](const LocalState& local) { verify(archive, local); });
      }
    });
  });
  return passed_over;
}

Reproducibility reproducibility_of(Trainer& trainer, const Archive& archive, const RestoreOptions& options) {
  std::vector<Reproducibility> all;
  for (const auto& component : run_components(trainer.run()))
    all.push_back(component->reproducibility(archive, options));
  return worst_of(all);
}

void restore_model(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper, const Archive& archive) {
  const std::shared_ptr<Stateful> model = model_state(wrapper);
  world.all_or_throw([&] {
    archive.await_arrival();
    CompatibilityReport report(archive);
    model->compare(archive, {}, report);
    report.throw_if_any();
  });
  model->restore(archive, {});
}

}  // namespace lockstep::engine
