// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/hooks/time_limit.hpp"
#include "engine/saving/candidates.hpp"
#include "engine/settings/builtin_registry.hpp"

namespace lockstep::checkpoints {
class Lease;
}

// The functions for training and evaluation, without LibTorch in the interface.
namespace lockstep::engine {

class EventStorage;

/// Every key of every module below the engine.
KeySpecs all_keys(const Registry& registry);

/// Checks the rows of a program beside the built-in ones: names are unique, rows have their functions, and a key that
/// has two owners has the same type, default and range in both. Built-in rows may share keys.
/// @param more  keys of the program that belong to no row
/// @throws ConfigError  states both owners. Not collective: the result is the same on every rank
void check_registry(const Registry& registry, const KeySpecs& more);

/// Reads the values that training reads before it opens the data, to find those that are refused. Not collective.
/// @param registry  knows the names that select models, losses, hooks and so on
/// @throws ConfigError  the first value that is not accepted, or does not fit another one of its section
void check_settings(const Sections& sections, const Registry& registry);

/// The facts on which the numbers of a run can depend in addition to its configuration, by name: versions of libraries
/// and compiler, system, processor. Not collective.
std::vector<std::pair<std::string, std::string>> platform_facts();

/// The plan of a configuration, before training.
struct RunPlan {
  struct PlannedParameter {
    std::string name;
    std::int64_t count = 0;  ///< elements
  };
  struct PlannedGroup {
    std::string name;
    std::map<std::string, double> options;  ///< options of the optimizer: lr, weight_decay, ...
    std::vector<PlannedParameter> parameters;
  };
  /// The way of one option of one group, where it begins and at the end of even parts of the run.
  struct PlannedCurve {
    std::string option;
    std::string group;
    std::vector<std::pair<std::int64_t, double>> values;  ///< updates done before, and the value in the next
  };
  std::vector<PlannedGroup> groups;
  std::vector<PlannedCurve> curves;  ///< the lr of every group, and all other options that rules change
  std::vector<std::string> remarks;
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 0;
};

/// Opens the data and builds the model, but trains nothing.
/// @param points  of each curve, at most; >= 2
/// Collective.
/// @throws ConfigError  what training would refuse
RunPlan plan(const mpi::Communicator& world, const Sections& sections, const Registry& registry, std::int64_t points);

struct TrainRequest {
  const Sections& sections;
  const Registry& registry;
  std::string checkpoint_directory;  ///< <run.dir>/ckpt; empty = nothing is saved or resumed
  /// The lease of the checkpoint directory, on rank 0; null = it is taken when training starts.
  std::shared_ptr<checkpoints::Lease> lease = nullptr;
  std::string config_ini;        ///< the resolved configuration, stored in every checkpoint
  std::string environment_json;  ///< stored in every checkpoint
  Reporter reporter;             ///< called on rank 0
  /// Called on every rank before training: where the run stands, and what it was restored from.
  std::function<void(std::int64_t step, const std::optional<std::string>& checkpoint)> on_start;
  /// If not empty, on this rank after each step and after training, to take tables, images and histograms out.
  std::function<void(EventStorage&)> on_artifacts = {};
  /// Called on rank 0 after training, with ddp.report.
  std::function<void(const parallel::DdpReport&)> on_report = {};
  /// Set on rank 0: the run saves and stops in time.
  std::optional<TimeLimit> time_limit = {};
  /// The number, on rank 0, of a run that a batch system starts: how often it has done so again by itself. Then starts
  /// are counted, and after resume.max_starts from the same step the run ends.
  std::optional<int> restarts = {};
  bool reads_request_files = true;     ///< whether the files STOP and SAVE in the run's folder are requests
  std::vector<PrioritizedHook> hooks;  ///< hooks in addition to the built-in ones
};

/// Trains as the configuration says. Collective.
/// @return  done, or stopped or ended on request after saving
/// @throws  an Error of any kind
Outcome train(const mpi::Communicator& world, TrainRequest request);

/// A learning-rate range test: the rate increases exponentially from step to step. Source: Smith, "Cyclical Learning
/// Rates for Training Neural Networks" (2017).
struct LrRange {
  double lowest = 1e-7;      ///< > 0
  double highest = 10;       ///< > lowest
  std::int64_t steps = 100;  ///< >= 2

  /// The rate of a step, from 0 to steps - 1.
  double rate(std::int64_t step) const;
};

struct LrPoint {
  double lr = 0;
  double loss = 0;      ///< loss of this step
  double smoothed = 0;  ///< mean of the losses so far, with exponentially decreasing weights
};

/// Adds the point of one step.
/// @return  false = the loss diverges: it is not finite, or its mean exceeds four times the lowest mean
bool add_point(std::vector<LrPoint>& points, double lr, double loss);

/// The rate at which the mean loss decreases fastest per factor of the rate; none = it never decreases, or there are
/// fewer than three points.
std::optional<double> suggested_lr(const std::vector<LrPoint>& points);

/// Trains with a learning rate that increases from step to step, until the loss diverges. Other groups keep their ratio
/// to the first one. Writes no file. Collective.
/// @return  a point for each step, the same on every rank
/// @throws ConfigError  the range is empty
std::vector<LrPoint> find_lr(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                             const LrRange& range);

/// Asks for an end after the current step. Safe in a signal handler.
void request_stop() noexcept;

/// The sentence for a readable checkpoint at which a run of this configuration has ended, by its length or by early
/// stopping; none if the run would continue from it. Collective: rank 0 reads.
std::optional<std::string> finished_at(const mpi::Communicator& world, const Sections& sections,
                                       const std::string& checkpoint);

/// The folder of the checkpoint that `from` names (a run's folder, its ckpt folder or a checkpoint), and the
/// configuration inside it. Collective: rank 0 reads.
/// @throws CheckpointError  nothing there, or damaged; on every rank
struct StoredConfig {
  std::string checkpoint;
  std::string config_ini;
};
StoredConfig stored_config(const mpi::Communicator& world, const std::string& from);

/// The metrics that evaluations report in addition to the loss, by the kind of the task: "accuracy" and so on.
std::vector<std::string> reported_metrics();

/// Writes the weights of a checkpoint of model torchscript into a copy of its archive. Collective: rank 0 writes.
/// @param target  the file to write; one of that name is replaced
/// @return    the step of the checkpoint
/// @throws ConfigError  the model of the run is not torchscript
std::int64_t export_script(const mpi::Communicator& world, const Sections& sections, const std::string& checkpoint,
                           const std::string& target);

}  // namespace lockstep::engine
