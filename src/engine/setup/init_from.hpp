// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <functional>
#include <string>
#include <vector>

#include "engine/state/model_tensors.hpp"
#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

/// Section `init`: where initial values come from.
struct InitSettings {
  std::vector<std::string> files = {};  ///< later ones win; empty = the model's own initial values
  std::string weights = "auto";         ///< which weights of a checkpoint are read: auto, trained or average
  std::string weights_cited_as = "";    ///< that key in messages
  bool is_partial = false;              ///< take what fits by name and shape
  bool resets_head = false;             ///< the last layer keeps its own initial values
  bool adapts_channels = false;         ///< whether the first convolution is adapted to other numbers of channels
  bool resizes_positions = true;        ///< whether position embeddings are resized to another grid of patches
  std::string family = "auto";          ///< library of the names: auto, torchvision or timm
  Renames renames = {};                 ///< rules that rename tensors of the file
  std::string section = "init";         ///< section of the keys, for messages

  static KeySpecs keys();
  /// @throws ConfigError      a value that its key does not accept
  /// @throws CheckpointError  a folder of a model has no weights
  static InitSettings from(const Section& init);
};

/// A tensor that a file and the model do not have in the same form.
struct InitDifference {
  std::string name;
  std::string in_file;   ///< type and shape; empty = missing
  std::string in_model;  ///< the same
  std::string remedy;    ///< remedy: what to do; empty = see init.rename and init.partial
};

using InitDifferences = std::vector<InitDifference>;

/// Takes initial parameters and buffers from files, if section `init` names some, and logs what is skipped: a Lockstep
/// checkpoint, or a safetensors, PyTorch, npz or HDF5 file. See find_tensors for how tensors of a file are found.
/// Values of another floating type are converted. A missing counter num_batches_tracked is 0.
///
/// The ranks of a host share one copy in memory: of a checkpoint, each rank reads a part; other files are mapped. Each
/// tensor is converted while it is copied to its place.
///
/// Collective.
/// @return  what was skipped because the settings take a part
/// @throws CheckpointError  it cannot be read, or holds other names or shapes than the model: a table of them, on every
/// rank
InitDifferences init_from(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                          const Sections& sections);

/// The same for a model that is not wrapped, without a warning.
/// @param write  calls its second argument for each of these parameters
/// @param check  looks at each file that is a checkpoint; it may throw
InitDifferences init_model(
    const mpi::Communicator& world, const models::Model& model, InitSettings settings,
    const std::function<void(const std::vector<NamedTensor>&, const std::function<void(const NamedTensor&)>&)>& write,
    const std::function<void(const checkpoints::Archive&)>& check = {});

/// Whether init_from, or a resume instead of it, gives every parameter of the model a value.
bool replaces_all_parameters(const Section& init);

}  // namespace lockstep::engine
