// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/run_state.hpp"

#include <lockstep/core/error.hpp>

#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/text/parameter_names.hpp"
#include "core/text/text.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/resume/components.hpp"
#include "engine/saving/reading.hpp"
#include "engine/saving/replicas.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/paths.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using Components = std::vector<std::shared_ptr<Stateful>>;

const std::string kScheduleState = "hooks/schedule";

void require_unique_names(const Components& components) {
  std::set<std::string> names;
  for (const auto& component : components) {
    if (names.insert(component->name()).second) continue;
    throw std::logic_error("two components of a checkpoint have the name '" + component->name() + "'");
  }
}

/// The components of a new checkpoint, in the order in which they are captured: the built-in ones, then those that
/// hooks add. The run outlives them.
/// @param config_ini  the resolved configuration
/// @throws std::logic_error  two components have the same name
Components captured_components(Run& run, const std::string& config_ini, const CapturedParts& parts) {
  parallel::DistributedDataParallel& wrapper = *run.model.wrapper;
  // The order is that of the groups in the file. Of two components that lower the reproducibility to the same level,
  // the first gives the reason.
  Components components = {progress_state(run), data_state(run), origin_state(run, config_ini)};
  const auto add_for_each_part = [&](const auto& state_of) {
    if (!parts.has_optimizer) return;
    for (auto& [name, optimizer] : run.updates.parts) components.push_back(state_of(name, optimizer));
  };
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return scaler_state(name.empty() ? kScaler : kScaler + "/" + name, optimizer, run.resources.world);
  });
  components.push_back(model_state(wrapper));
  if (parts.has_optimizer) components.push_back(parts_state(run));
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return optimizer_state({.group = name.empty() ? kOptimizer : kOptimizers + "/" + name,
                            .optimizer = &optimizer.optimizer(),
                            .store = &wrapper.store(),
                            .name = name,
                            .part = dynamic_cast<parallel::PartParameters*>(&optimizer.parameters())});
  });
  const Components others = {ema_state(run), random_state(run.resources.world), comm_hook_state(run),
                             arithmetic_state(run), buckets_state(run)};
  components.insert(components.end(), others.begin(), others.end());
  for (const auto& [priority, hook] : run.hooks) {
    for (const auto& state : hook->states()) {
      if (parts.has_schedule || state->name() != kScheduleState) components.push_back(state);
    }
  }
  require_unique_names(components);
  return components;
}

/// All components of a run, in the order in which they are restored.
Components run_components(Run& run) { return captured_components(run, "", {}); }

bool names_parameters(const std::string& group) {
  return group == kParameters || group == kBuffers || group == kAverageParameters || group == kAverageBuffers ||
         (group.starts_with(kOptimizers + "/") && group.find("/state/") != std::string::npos);
}

/// The lists of the parameters of an optimizer, and of those in buckets.
bool lists_parameters(const std::string& path) {
  const bool is_of_optimizer = path.starts_with(kOptimizers + "/") && path.find("/state/") == std::string::npos;
  return (is_of_optimizer && path.ends_with("/param_names")) || path == kBuckets + "/param_names";
}

std::string new_path(const std::string& array_path, const Renames& renames) {
  const auto slash = array_path.rfind('/');
  const std::string group = array_path.substr(0, slash);
  return names_parameters(group)
             ? path(group, new_name(checkpoints::decode_name(array_path.substr(slash + 1)), renames))
             : array_path;
}

/// A text with one name per line.
checkpoints::Array with_new_names(const checkpoints::Array& lines, const Renames& renames) {
  std::vector<std::string> names = lines_in(checkpoints::text_of(lines));
  for (std::string& name : names) name = new_name(name, renames);
  return checkpoints::text_array(as_lines(names));
}

/// The archive with other names for its parameters and buffers, also where the optimizer, the average and the buckets
/// name them.
Archive renamed(const Archive& archive, const Renames& renames) {
  if (renames.empty()) return archive;
  Archive result;
  result.set_origin(archive.origin());
  for (const auto& [name, value] : archive.attributes_of("/")) result.set("/", name, value);
  for (const std::string& group : archive.group_paths()) {
    result.add_group(group);
    for (const auto& [name, value] : archive.attributes_of(group)) result.set(group, name, value);
  }
  for (const std::string& array_path : archive.array_paths()) {
    const std::string& first = archive.first_path_of(array_path);
    if (lists_parameters(array_path)) {
      result.put(array_path, with_new_names(archive.array(array_path), renames));
    } else if (first.empty()) {
      result.put(new_path(array_path, renames), archive.array(array_path));
    } else {
      result.link(new_path(array_path, renames), new_path(first, renames));
    }
  }
  return result;
}

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
