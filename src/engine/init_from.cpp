// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/foreign.hpp>
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/init_from.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "setup/strategy.hpp"
#include "state_names.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

constexpr std::size_t kShownDifferences = 20;

using Stored = std::map<std::string, const Array*>;  // by the model's name
using Live = std::map<std::string, at::Tensor>;

Live tensors_of(const models::Model& model) {
  Live live;
  for (const auto& item : model.named_parameters()) live.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) live.emplace(item.key(), item.value());
  return live;
}

/// With one model: the trained one, or the average beside it.
Archive read_any(const std::string& path, const Section& init) {
  const bool is_own =
      std::filesystem::is_directory(path) || checkpoints::kind_of(path) == checkpoints::FileKind::lockstep;
  if (!is_own) return checkpoints::read_foreign(path);
  const Archive archive = checkpoints::read(path);
  const bool is_average = takes_average(archive, init.text("weights"), init.cite("weights"));
  if (is_average) log::info("init.from: the averaged weights of " + path + ", see init.weights");
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
  std::ptrdiff_t most = -1;
  for (const auto& [group, stored] : groups) {
    const auto known =
        std::count_if(stored.begin(), stored.end(), [&live](const auto& item) { return live.contains(item.first); });
    if (known > most) best = &stored;
    most = std::max(most, known);
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
  for (std::size_t i = 0; i < std::min(kShownDifferences, differences.size()); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kShownDifferences)
    text += "; and " + std::to_string(differences.size() - kShownDifferences) + " more";
  throw CheckpointError(
      path, "does not fit the model: " + text + "; see init.rename for other names, and init.partial to take what fits")
      .as(CheckpointFault::incompatible);
}

}  // namespace

std::vector<std::string> init_from(Strategy& strategy, const Section& init) {
  const std::string& path = init.text("from");
  if (path.empty()) return {};
  Archive archive;
  Stored stored;
  std::vector<std::string> differences;
  const Live live = tensors_of(strategy.model().model());
  strategy.world().together([&] {
    archive = read_any(path, init);
    stored = best_group(groups_of(archive, renames_of(init)), live);
    differences = differences_of(stored, live);
    const bool is_nothing_known =
        std::none_of(stored.begin(), stored.end(), [&live](const auto& item) { return live.contains(item.first); });
    if (is_nothing_known || (!differences.empty() && !init.boolean("partial"))) refuse(path, differences);
  });
  const torch::NoGradGuard no_grad;
  const auto load = [&stored](const std::string& name, const at::Tensor& tensor) {
    const auto found = stored.find(name);
    if (found == stored.end() || !can_convert(*found->second, tensor)) return;
    const Array& array = *found->second;
    tensor.copy_(at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape,
                               at::TensorOptions().dtype(parallel::scalar_type_of(array.dtype))));
  };
  strategy.model().parameters().write_whole([&] {
    for (const auto& item : strategy.model().model().named_parameters()) load(item.key(), item.value());
  });
  for (const auto& item : strategy.model().model().named_buffers()) load(item.key(), item.value());
  return differences;
}

}  // namespace lockstep::engine
