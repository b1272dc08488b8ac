// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/section.hpp>

#include <string>
#include <utility>
#include <vector>

// Where tensors meet checkpoint archives. checkpoints/FORMAT.md names every path.
namespace lockstep::engine {

class Strategy;
class Trainer;

/// Everything a run needs to continue bit for bit. Collective; complete on ranks that say so, empty elsewhere.
/// The arrays of parameters and buffers borrow the live tensors: use the archive before the next step.
/// @param config_ini  the resolved configuration
checkpoints::Archive capture(Trainer& trainer, const std::string& config_ini, bool is_writer);

/// What may differ between a checkpoint and the run that goes on from it. By default nothing.
struct RestoreOptions {
  bool is_partial = false;      ///< take what fits by name, type and shape; the rest keeps its initial values
  bool resets_optim = false;    ///< moments and update counts start afresh
  bool resets_sched = false;    ///< the schedule begins anew at this step
  bool resets_sampler = false;  ///< the samples begin anew, with epoch 0
  bool resets_rng = false;      ///< LibTorch's generators keep the state they have
  bool resets_average = false;  ///< the average of weights begins anew
  std::vector<std::pair<std::string, std::string>> renames = {};  ///< beginning of a stored name, and what to put there
};

/// From section `resume`: keys partial, reset and rename.
/// @throws ConfigError  a value that is not one of theirs
RestoreOptions restore_options(const Section& resume);

/// The memory of the live run that a checkpoint's arrays can be read straight into, inside ParameterStore::write: those
/// who share parameters read a part each. None with options under which the next checkpoint, should this one turn out
/// to be damaged, would not overwrite all of it.
checkpoints::Homes homes_of(Strategy& strategy, const RestoreOptions& options = {});

/// Puts the run into the archived state, in place. The comparison with the live run is complete before anything
/// changes, but for what was read straight into it; afterwards every rank compares what it holds with the archive.
/// Collective; every rank brings the same.
/// @return  what was passed over because of the options, for the log
/// @throws CheckpointError  another model, optimizer or data set; lists what differs, on every rank
std::vector<std::string> restore(Trainer& trainer, const checkpoints::Archive& archive,
                                 const RestoreOptions& options = {});

/// How exactly the run goes on: "bitwise", "order" (the same samples in the same order) or "statistical", and why.
std::string exactness_of(Trainer& trainer, const checkpoints::Archive& archive, const RestoreOptions& options);

/// Only parameters and buffers: what evaluation needs.
void restore_model(Strategy& strategy, const checkpoints::Archive& archive);

}  // namespace lockstep::engine
