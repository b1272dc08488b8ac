// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/init_from.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoints/interop/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "core/renames.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/state/average.hpp"
#include "engine/state/model_tensors.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/renames.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/sync/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

constexpr std::size_t kMaxShownDifferences = 20;

using Stored = std::map<std::string, const Array*>;  // by the model's name
using Live = std::map<std::string, at::Tensor>;

Live tensors_of(const models::Model& model) {
  Live live;
  for (const auto& item : model.named_parameters()) live.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) live.emplace(item.key(), item.value());
  return live;
}

/// With one model: the trained one, or its average.
Archive read_any(const InitSettings& settings) {
  const std::string& file = settings.file;
  const bool is_own =
      std::filesystem::is_directory(file) || checkpoints::kind_of(file) == checkpoints::FileKind::lockstep;
  if (!is_own) return checkpoints::read_foreign(file);
  const Archive archive = checkpoints::read(file);
  const bool is_average = takes_average(archive, settings.weights, settings.weights_cited_as);
  if (is_average) log::info("init.from: reading the averaged weights of " + file + ", see init.weights");
  return with_model(archive, is_average);
}

/// The arrays of each group under the names that the model may know them by.
std::map<std::string, Stored> groups_of(const Archive& archive, const Renames& renames) {
  std::map<std::string, Stored> groups;
  for (const std::string& path : archive.array_paths()) {
    const auto slash = path.rfind('/');
    std::string group = path.substr(0, slash);
    if (group == kBuffers) group = kParameters;  // of a checkpoint of ours both are wanted
    const std::string name = new_name(checkpoints::decode_name(path.substr(slash + 1)), renames);
    groups[group].emplace(name, &archive.array(path));
  }
  return groups;
}

const Stored& best_group(const std::map<std::string, Stored>& groups, const Live& live) {
  static const Stored none;
  const Stored* best = &none;
  std::ptrdiff_t max = -1;
  for (const auto& [group, stored] : groups) {
    const auto known =
        std::count_if(stored.begin(), stored.end(), [&live](const auto& item) { return live.contains(item.first); });
    if (known > max) best = &stored;
    max = std::max(max, known);
  }
  return *best;
}

bool can_convert(const Array& saved, const at::Tensor& live) {
  const at::ScalarType type = parallel::scalar_type_of(saved.dtype);
  const bool is_convertible = at::isFloatingType(type) && live.is_floating_point();
  return saved.shape == live.sizes().vec() && (type == live.scalar_type() || is_convertible);
}

std::string shape_text(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t dimension : shape) text += (text.empty() ? "" : ", ") + std::to_string(dimension);
  return std::string(name_of(dtype)) + " [" + text + "]";
}

std::vector<std::string> differences_of(const Stored& stored, const Live& live) {
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : live) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      // Of a tied weight one name is enough.
      const bool has_other_name = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.second.is_same(tensor) && stored.contains(other.first);
      });
      if (has_other_name) continue;
      differences.push_back("'" + name + "' is missing");
    } else if (!can_convert(*found->second, tensor)) {
      differences.push_back("'" + name + "' is " + shape_text(found->second->dtype, found->second->shape) +
                            ", the model has " + shape_text(parallel::dtype_of(tensor, name), tensor.sizes().vec()));
    }
  }
  for (const auto& [name, array] : stored) {
    if (!live.contains(name)) differences.push_back("'" + name + "' is not in the model");
  }
  return differences;
}

[[noreturn]] void refuse(const std::string& path, const std::vector<std::string>& differences) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxShownDifferences, differences.size()); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kMaxShownDifferences)
    text += "; and " + std::to_string(differences.size() - kMaxShownDifferences) + " more";
  throw CheckpointError(path, "does not fit the model: " + text +
                                  "; use init.rename if names differ, or init.partial to load only the matching ones")
      .as(CheckpointFault::incompatible);
}

/// What the model takes from the file.
struct Source {
  Archive archive;
  Stored stored = {};                         // in the archive
  std::vector<std::string> differences = {};  // from the model
};

Source read_source_of(const InitSettings& settings, const Live& live) {
  Source source{.archive = read_any(settings)};
  source.stored = best_group(groups_of(source.archive, settings.renames), live);
  source.differences = differences_of(source.stored, live);
  const bool is_nothing_known = std::none_of(source.stored.begin(), source.stored.end(),
                                             [&live](const auto& item) { return live.contains(item.first); });
  if (is_nothing_known || (!source.differences.empty() && !settings.is_partial)) {
    refuse(settings.file, source.differences);
  }
  return source;
}

}  // namespace

KeySpecs InitSettings::keys() {
  return {
      keys::text("init.from", "",
                 "File with initial parameters: a checkpoint, .safetensors, .pt, .npz or .h5 file. Ignored when the "
                 "run resumes"),
      weights_key("init.weights", "Weights to read if init.from is a checkpoint: the trained ones or their average"),
      keys::boolean("init.partial", "false",
                    "Load only the parameters that match by name and shape. The others keep their initial values"),
      keys::texts("init.rename", "",
                  "FROM=TO: replace the prefix FROM by TO in the parameter names of the file. re:FROM=TO replaces the "
                  "first match of a regular expression; $1 in TO is a group"),
  };
}

InitSettings InitSettings::from(const Section& init) {
  if (init.text("from").empty()) return {};  // nothing else is used
  return {.file = init.text("from"),
          .weights = init.text("weights"),
          .weights_cited_as = init.cite("weights"),
          .is_partial = init.boolean("partial"),
          .renames = renames_of(init)};
}

std::vector<std::string> init_from(Strategy& strategy, const InitSettings& settings) {
  if (settings.file.empty()) return {};
  const models::Model& model = strategy.model().model();
  Source source;
  strategy.world().all_or_throw([&] { source = read_source_of(settings, tensors_of(model)); });
  const torch::NoGradGuard no_grad;
  const auto take = [&source](const NamedTensor& live) {
    const auto found = source.stored.find(live.name);
    if (found == source.stored.end() || !can_convert(*found->second, live.tensor)) return;
    live.tensor.copy_(tensor_over(*found->second));
  };
  write_parameters({&strategy.model().store()}, parameters_of(model), take);
  for (const NamedTensor& buffer : buffers_of(model)) take(buffer);
  return source.differences;
}

std::vector<std::string> init_from(Strategy& strategy, const Section& init) {
  InitSettings settings;
  strategy.world().all_or_throw([&] { settings = InitSettings::from(init); });
  return init_from(strategy, settings);
}

}  // namespace lockstep::engine
