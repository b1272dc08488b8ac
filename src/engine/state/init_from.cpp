// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/init_from.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoints/interop/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "core/renames.hpp"
#include "core/text.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/state/average.hpp"
#include "engine/state/init_names.hpp"
#include "engine/state/model_tensors.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/renames.hpp"
#include "models/adapted_weights.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/sync/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

constexpr std::size_t kMaxShownDifferences = 20;

using Live = std::map<std::string, at::Tensor>;

Live tensors_of(const models::Model& model) {
  Live live;
  for (const auto& item : model.named_parameters()) live.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) live.emplace(item.key(), item.value());
  return live;
}

/// Lockstep's own files with one model: the trained one, or its average.
Archive read_any(const InitSettings& settings, const std::string& file, NameRules& rules) {
  const bool is_own =
      std::filesystem::is_directory(file) || checkpoints::kind_of(file) == checkpoints::FileKind::lockstep;
  if (!is_own) {
    std::vector<std::string> skipped;
    Archive archive = checkpoints::read_foreign(file, &skipped);
    for (const std::string& what : skipped)
      log::warning("init.from: " + file + ": left out an object of class " + what);
    return archive;
  }
  rules.weights = "auto";  // there is one model
  const Archive archive = checkpoints::read(file);
  const bool is_average = takes_average(archive, settings.weights, settings.weights_cited_as);
  if (is_average) log::info("init.from: reading the averaged weights of " + file + ", see init.weights");
  return with_model(archive, is_average);
}

bool has_convertible_type(const Array& saved, const at::Tensor& live) {
  const at::ScalarType type = parallel::scalar_type_of(saved.dtype);
  return type == live.scalar_type() || (at::isFloatingType(type) && live.is_floating_point());
}

bool is_below(const std::string& name, const std::string& module) {
  return !module.empty() && name.starts_with(module + ".");
}

bool is_counter(const std::string& name) { return name.ends_with("num_batches_tracked"); }

/// What happens to a tensor of the file.
enum class Fit { same, channels, positions, none };

Fit fit_of(const std::string& name, const StoredTensor& saved, const at::Tensor& live, const models::Anatomy& anatomy,
           const InitSettings& settings) {
  const std::vector<std::int64_t> shape = live.sizes().vec();
  if (!has_convertible_type(*saved.array, live)) return Fit::none;
  if (saved.shape == shape) return Fit::same;
  if (saved.shape.size() != shape.size()) return Fit::none;
  if (settings.adapts_channels && name == anatomy.stem + ".weight" && shape.size() > 1) {
    std::vector<std::int64_t> adapted = saved.shape;
    adapted[1] = shape[1];
    if (adapted == shape && saved.shape[1] > 0) return Fit::channels;
  }
  const bool is_grid = settings.resizes_positions && !anatomy.positions.empty() && name == anatomy.positions;
  if (is_grid && saved.shape.size() == 3 && saved.shape[2] == shape[2] && saved.shape[0] == 1) {
    const std::int64_t cells = saved.shape[1] - anatomy.prefix_tokens;
    const auto side =
        static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(std::max<std::int64_t>(cells, 0)))));
    if (cells > 0 && side * side == cells) return Fit::positions;
  }
  return Fit::none;
}

std::string shape_text(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t dimension : shape) text += (text.empty() ? "" : ", ") + std::to_string(dimension);
  return std::string(name_of(dtype)) + " [" + text + "]";
}

/// A first convolution with another kernel belongs to another stem of the same family.
std::string stem_remark(const StoredTensor& saved, const at::Tensor& live) {
  const bool has_kernels = saved.shape.size() == 4 && live.dim() == 4;
  if (!has_kernels || saved.shape[2] == live.size(2)) return "";
  const std::string stem = saved.shape[2] == 7 ? "imagenet" : saved.shape[2] == 3 ? "small" : "";
  return stem.empty() ? "" : " (weights of another stem: set model.stem=" + stem + ")";
}

std::vector<std::string> differences_of(const StoredTensors& stored, const Live& live, const models::Anatomy& anatomy,
                                        const InitSettings& settings) {
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : live) {
    const auto found = stored.find(name);
    if (settings.resets_head && is_below(name, anatomy.head)) continue;
    if (found == stored.end()) {
      // Of a tied weight one name is enough.
      const bool has_other_name = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.second.is_same(tensor) && stored.contains(other.first);
      });
      if (has_other_name || is_counter(name)) continue;
      differences.push_back("'" + name + "' is missing");
    } else if (fit_of(name, found->second, tensor, anatomy, settings) == Fit::none) {
      std::string remark;
      if (name == anatomy.stem + ".weight") remark = stem_remark(found->second, tensor);
      if (is_below(name, anatomy.head)) remark = " (another number of classes: see init.head)";
      differences.push_back("'" + name + "' is " + shape_text(found->second.array->dtype, found->second.shape) +
                            ", the model has " + shape_text(parallel::dtype_of(tensor, name), tensor.sizes().vec()) +
                            remark);
    }
  }
  for (const auto& [name, saved] : stored) {
    const bool is_expected = live.contains(name) || is_counter(name);
    if (!is_expected && !(settings.resets_head && is_below(name, anatomy.head))) {
      differences.push_back("'" + name + "' is not in the model");
    }
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

/// What the model takes from the files.
struct Source {
  std::vector<Archive> archives = {};         // in the order of the files
  StoredTensors stored = {};                  // of all archives
  std::vector<std::string> differences = {};  // from the model
};

Source read_source_of(const InitSettings& settings, const Live& live, const models::Anatomy& anatomy) {
  Source source;
  const auto is_known = [&live](const std::string& name) { return live.contains(name); };
  source.archives.reserve(settings.files.size());  // tensors refer to arrays inside
  for (const std::string& file : settings.files) {
    NameRules rules{
        .renames = settings.renames, .family = settings.family, .model = settings.model, .weights = settings.weights};
    source.archives.push_back(read_any(settings, file, rules));
    StoredTensors tensors = find_tensors(source.archives.back(), rules, is_known);
    if (tensors.empty() && rules.weights == "average") {
      throw ConfigError(settings.weights_cited_as + ": " + file + " contains no average of the weights");
    }
    for (auto& [name, tensor] : tensors) source.stored.insert_or_assign(name, std::move(tensor));
  }
  source.differences = differences_of(source.stored, live, anatomy, settings);
  const bool is_nothing_known =
      std::none_of(source.stored.begin(), source.stored.end(), [&](const auto& item) { return is_known(item.first); });
  if (is_nothing_known || (!source.differences.empty() && !settings.is_partial)) {
    refuse(joined(settings.files), source.differences);
  }
  return source;
}

/// The values of a tensor in the shape of the live one.
at::Tensor adapted(const StoredTensor& saved, const at::Tensor& live, Fit fit, const models::Anatomy& anatomy) {
  const at::Tensor values = tensor_over(*saved.array).view(saved.shape);
  if (fit == Fit::channels) return models::adapt_channels(values, live.size(1));
  if (fit == Fit::positions) return models::adapt_positions(values, anatomy);
  return values;
}

/// "layer1 12 of 12, fc 0 of 2".
std::string counts_text(const std::map<std::string, std::pair<int, int>>& counts) {
  std::string text;
  for (const auto& [module, count] : counts) {
    text +=
        (text.empty() ? "" : ", ") + module + " " + std::to_string(count.first) + " of " + std::to_string(count.second);
  }
  return text;
}

}  // namespace

KeySpecs InitSettings::keys() {
  return {
      keys::text("init.from", "",
                 "File with initial parameters: a checkpoint, .safetensors, .pt, .pth, .npz or .h5 file. Of several "
                 "files, separated by commas, later ones replace tensors of earlier ones. Ignored when the run "
                 "resumes"),
      weights_key(
          "init.weights",
          "Weights to read if init.from contains trained ones and their average, as a checkpoint or a .pth file "
          "with state_dict_ema or model_ema"),
      keys::choice("init.head", "keep",
                   "Last layer of the model: keep = take it from the file, which must have the same number of classes; "
                   "reset = leave it at its own initial values",
                   {"keep", "reset"}),
      keys::boolean("init.adapt_channels", "false",
                    "Adapt the first convolution if the file has another number of input channels: one channel is the "
                    "sum of all; otherwise, the channels are repeated and scaled"),
      keys::boolean("init.resize_positions", "true",
                    "Resize learned positions (bicubic) if the file has another grid of patches"),
      keys::choice("init.family", "auto",
                   "Library that defines the parameter names of the file. auto = find it by the names",
                   {"auto", "torchvision", "timm"}),
      keys::boolean("init.partial", "false",
                    "Load only the parameters that match by name and shape. The others keep their initial values"),
      keys::texts("init.rename", "",
                  "FROM=TO: replace the prefix FROM by TO in the parameter names of the file. re:FROM=TO replaces the "
                  "first match of a regular expression; $1 in TO is a group"),
  };
}

InitSettings InitSettings::from(const Section& init) {
  const std::string& from = init.text("from");
  if (from.empty()) return {};  // nothing else is used
  return {.files = std::filesystem::exists(from) ? std::vector{from} : words_in(from),
          .weights = init.text("weights"),
          .weights_cited_as = init.cite("weights"),
          .is_partial = init.boolean("partial"),
          .resets_head = init.text("head") == "reset",
          .adapts_channels = init.boolean("adapt_channels"),
          .resizes_positions = init.boolean("resize_positions"),
          .family = init.text("family"),
          .renames = renames_of(init)};
}

std::vector<std::string> init_from(Strategy& strategy, const InitSettings& settings) {
  if (settings.files.empty()) return {};
  const models::Model& model = strategy.model().model();
  const models::Anatomy anatomy = model.anatomy();
  Source source;
  strategy.world().all_or_throw([&] {
    if (settings.resets_head && anatomy.head.empty()) {
      throw ConfigError("init.head=reset: this model does not name its last layer; use init.partial");
    }
    source = read_source_of(settings, tensors_of(model), anatomy);
  });
  const torch::NoGradGuard no_grad;
  const auto fit = [&](const NamedTensor& live) {
    const auto found = source.stored.find(live.name);
    const bool is_reset = settings.resets_head && is_below(live.name, anatomy.head);
    if (found == source.stored.end() || is_reset) return Fit::none;
    return fit_of(live.name, found->second, live.tensor, anatomy, settings);
  };
  const auto take = [&](const NamedTensor& live) {
    const Fit how = fit(live);
    if (how != Fit::none) live.tensor.copy_(adapted(source.stored.at(live.name), live.tensor, how, anatomy));
    if (!source.stored.contains(live.name) && is_counter(live.name)) live.tensor.zero_();
  };
  const std::vector<NamedTensor> parameters = parameters_of(model);
  write_parameters({&strategy.model().store()}, parameters, take);
  for (const NamedTensor& buffer : buffers_of(model)) take(buffer);

  std::map<std::string, std::pair<int, int>> counts;
  for (const NamedTensor& parameter : parameters) {
    const Fit how = fit(parameter);
    auto& [taken, all] = counts[parameter.name.substr(0, parameter.name.find('.'))];
    taken += how == Fit::none ? 0 : 1;
    ++all;
    if (how == Fit::channels) log::info("init.adapt_channels: " + parameter.name + " is adapted to the input channels");
    if (how == Fit::positions) log::info("init.resize_positions: " + parameter.name + " is resized to the grid");
  }
  if (settings.resets_head) log::info("init.head: " + anatomy.head + " keeps its own initial values");
  if (settings.is_partial) log::info("init.partial: parameters taken: " + counts_text(counts));
  return source.differences;
}

std::vector<std::string> init_from(Strategy& strategy, const Sections& sections) {
  InitSettings settings;
  strategy.world().all_or_throw([&] { settings = InitSettings::from(sections.at("init")); });
  settings.model = sections.at("model").text("name");
  return init_from(strategy, settings);
}

}  // namespace lockstep::engine
