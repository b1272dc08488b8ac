// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/init_from.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/interop/timm_config.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "engine/saving/reading.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/init_names.hpp"
#include "engine/state/stored_model.hpp"
#include "models/layers/initial_values.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

constexpr std::size_t kMaxShownDifferences = 20;

// ---- Which tensors of a file fit which tensors of a model. ----

/// Parameters and buffers of a model by name.
using LiveTensors = std::map<std::string, at::Tensor>;

/// The treatment of a tensor of the file.
enum class Fit {
  same,       ///< it is copied, and converted if its floating type differs
  channels,   ///< it is adapted to the number of input channels
  positions,  ///< it is resized to the grid of patches
  none,       ///< it cannot be taken
};

/// Whether the name is inside of the module.
bool is_below(const std::string& name, const std::string& module) {
  return !module.empty() && name.starts_with(module + ".");
}

/// A counter of batches, which older files do not have.
bool is_counter(const std::string& name) { return name.ends_with("num_batches_tracked"); }

/// The type of the numbers of a file. Complex ones are pairs of real ones, as in StoredTensor::shape.
at::ScalarType number_type(const checkpoints::Array& saved) {
  if (saved.dtype == DType::complex64) return at::kFloat;
  if (saved.dtype == DType::complex128) return at::kDouble;
  return parallel::scalar_type_of(saved.dtype);
}

bool has_convertible_type(const checkpoints::Array& saved, const at::Tensor& live) {
  const at::ScalarType type = number_type(saved);
  return type == live.scalar_type() || (at::isFloatingType(type) && live.is_floating_point());
}

std::string form_text(DType dtype, const std::vector<std::int64_t>& shape) {
  return std::string(name_of(dtype)) + " " + shape_text(shape);
}

std::string form_of_live(const at::Tensor& live, const std::string& name) {
  return form_text(parallel::dtype_of(live, name), live.sizes().vec());
}

/// A first convolution with another kernel belongs to another stem of the same family; else the channels differ.
std::string stem_remedy(const StoredTensor& saved, const at::Tensor& live) {
  const bool has_kernels = saved.shape.size() == 4 && live.dim() == 4;
  if (!has_kernels) return "";
  if (saved.shape[2] == live.size(2)) {
    return saved.shape[0] == live.size(0) ? "other input channels: set init.adapt_channels=true" : "";
  }
  const std::string stem = saved.shape[2] == 7 ? "imagenet" : saved.shape[2] == 3 ? "small" : "";
  return stem.empty() ? "" : "weights of another stem: set model.stem=" + stem;
}

std::string remedy_of(const std::string& name, const StoredTensor& saved, const at::Tensor& live,
                      const models::Anatomy& anatomy) {
  if (!has_convertible_type(*saved.array, live)) return "another kind of numbers, which is not converted";
  if (name == anatomy.stem + ".weight") return stem_remedy(saved, live);
  if (is_below(name, anatomy.head)) return "another number of classes: set init.head=reset";
  if (name == anatomy.positions) return "another grid of patches: set init.resize_positions=true";
  return "another size: check the keys of the model";
}

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

/// The tensors that are missing, not in the model, or of another shape or type.
InitDifferences differences_of(const StoredTensors& stored, const LiveTensors& live, const models::Anatomy& anatomy,
                               const InitSettings& settings) {
  InitDifferences differences;
  for (const auto& [name, live_tensor] : live) {
    const at::Tensor& tensor = live_tensor;  // clang 14 does not capture structured bindings
    const auto found = stored.find(name);
    if (settings.resets_head && is_below(name, anatomy.head)) continue;
    if (found == stored.end()) {
      // One name of a tied weight is enough.
      const bool has_other_name = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.second.is_same(tensor) && stored.contains(other.first);
      });
      if (has_other_name || is_counter(name)) continue;
      differences.push_back({.name = name, .in_file = "", .in_model = form_of_live(tensor, name), .remedy = ""});
      if (is_below(name, anatomy.head)) differences.back().remedy = "no head in the file: set init.head=reset";
    } else if (fit_of(name, found->second, tensor, anatomy, settings) == Fit::none) {
      differences.push_back({.name = name,
                             .in_file = form_text(found->second.array->dtype, found->second.shape),
                             .in_model = form_of_live(tensor, name),
                             .remedy = remedy_of(name, found->second, tensor, anatomy)});
    }
  }
  for (const auto& [name, saved] : stored) {
    const bool is_expected = live.contains(name) || is_counter(name);
    if (is_expected || (settings.resets_head && is_below(name, anatomy.head))) continue;
    differences.push_back(
        {.name = name, .in_file = form_text(saved.array->dtype, saved.shape), .in_model = "", .remedy = ""});
  }
  if (settings.section != "init") {  // the model cannot change to fit the file
    for (InitDifference& difference : differences) {
      difference.remedy = is_below(difference.name, anatomy.head) ? "another number of classes than the data"
                                                                  : "set distill.model to the model of the file";
    }
  }
  return differences;
}

/// A line break, and a table with up to 20 differences and the number of the others.
std::string table_of(const InitDifferences& differences) {
  TextTable table({Align::left});
  table.add({"", "tensor", "in the file", "in the model", "what to do"});
  for (std::size_t i = 0; i < std::min(kMaxShownDifferences, differences.size()); ++i) {
    const InitDifference& difference = differences[i];
    const bool is_elsewhere = difference.in_file.empty() || difference.in_model.empty();
    const std::string usual = is_elsewhere ? "rename it (init.rename), or leave it out (init.partial)" : "";
    table.add({"", difference.name, difference.in_file.empty() ? "missing" : difference.in_file,
               difference.in_model.empty() ? "missing" : difference.in_model,
               difference.remedy.empty() ? usual : difference.remedy});
  }
  std::string text = "\n" + table.text();
  text.pop_back();
  if (differences.size() > kMaxShownDifferences) {
    text += "\n  and " + std::to_string(differences.size() - kMaxShownDifferences) + " more";
  }
  return text;
}

// ---- Reading the files. ----

LiveTensors tensors_of(const models::Model& model) {
  LiveTensors live;
  for (const auto& item : model.named_parameters()) live.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) live.emplace(item.key(), item.value());
  return live;
}

bool is_checkpoint(const std::string& file) {
  return std::filesystem::is_directory(file) || checkpoints::kind_of(file) == checkpoints::FileKind::lockstep;
}

/// How the ranks of a host read the files.
struct Reading {
  const mpi::Communicator& host;
  const HostWeights& own;                            ///< weights of Lockstep's own files
  const std::function<void(const Archive&)>& check;  ///< called with each of these files; may be empty
};

/// Lockstep's own files with one model: the trained one, or its average.
Archive read_any(const InitSettings& settings, const std::string& file, const Reading& reading, NameRules& rules) {
  if (!is_checkpoint(file)) {
    std::vector<std::string> left_out;
    Archive archive = checkpoints::read_foreign(file, {.left_out = &left_out,
                                                       .is_mapped = true,
                                                       .part = static_cast<std::size_t>(reading.host.rank()),
                                                       .parts = static_cast<std::size_t>(reading.host.size())});
    for (const std::string& what : left_out) log::warning(settings.section + ".from: " + file + ": left out " + what);
    return archive;
  }
  rules.weights = "auto";  // there is one model
  const Archive archive = reading.own.read(file);
  if (reading.check) reading.check(archive);
  const bool is_average = takes_average(archive, settings.weights, settings.weights_cited_as);
  const std::string& section = settings.section;
  if (is_average)
    log::info(section + ".from: reading the averaged weights of " + file + ", see " + section + ".weights");
  return with_model(archive, is_average);
}

[[noreturn]] void refuse(const InitSettings& settings, const InitDifferences& differences) {
  const std::string remedy = settings.section == "init"
                                 ? "; use init.rename if names differ, or init.partial to load only the matching ones"
                                 : "; set distill.model to the model of the file, or distill.rename if names differ";
  throw CheckpointError(joined(settings.files),
                        "does not fit the model (" + std::to_string(differences.size()) +
                            (differences.size() == 1 ? " tensor differs)" : " tensors differ)") + remedy +
                            table_of(differences))
      .as(CheckpointFault::incompatible);
}

/// The parts that the model takes from the files.
struct Source {
  std::vector<Archive> archives = {};  // archives in the order of the files
  StoredTensors stored = {};           // tensors of all archives
  InitDifferences differences = {};    // differences from the model
};

Source read_source_of(const InitSettings& settings, const models::Model& model, const Reading& reading) {
  Source source;
  const LiveTensors live = tensors_of(model);
  const auto is_known = [&live](const std::string& name) { return live.contains(name); };
  source.archives.reserve(settings.files.size());  // tensors refer to arrays inside
  for (const std::string& file : settings.files) {
    NameRules rules{.renames = settings.renames,
                    .library = settings.family,
                    .family = &model.family(),
                    .weights = settings.weights};
    source.archives.push_back(read_any(settings, file, reading, rules));
    FoundTensors found = find_tensors(source.archives.back(), rules, is_known);
    if (found.tensors.empty() && rules.weights != "auto") {
      throw ConfigError(settings.weights_cited_as + ": " + file +
                        (rules.weights == "average" ? " contains no average of the weights"
                                                    : " contains only an average of the weights"));
    }
    if (found.is_average) {
      log::info(settings.section + ".from: reading the averaged weights of " + file + " (" +
                (found.group.empty() ? "the whole file" : found.group.substr(1)) + "), see " + settings.section +
                ".weights");
    }
    for (auto& [name, tensor] : found.tensors) source.stored.insert_or_assign(name, std::move(tensor));
  }
  source.differences = differences_of(source.stored, live, model.anatomy(), settings);
  const bool is_nothing_known =
      std::none_of(source.stored.begin(), source.stored.end(), [&](const auto& item) { return is_known(item.first); });
  if (is_nothing_known || (!source.differences.empty() && !settings.is_partial)) {
    refuse(settings, source.differences);
  }
  return source;
}

/// The values of a tensor in the shape of the live one.
at::Tensor adapted(const StoredTensor& saved, const at::Tensor& live, Fit fit, const models::Anatomy& anatomy) {
  const at::Tensor values = at::from_blob(const_cast<std::byte*>(saved.array->bytes.data()), saved.shape,
                                          at::TensorOptions().dtype(number_type(*saved.array)));
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

/// The same files, with the latest checkpoint for each run. Rank 0 looks, so that all ranks read the same. Collective.
std::vector<std::string> with_latest_checkpoints(const mpi::Communicator& world, const InitSettings& settings) {
  return lines_in(text_of_root(world, [&] {
    std::vector<std::string> files = settings.files;
    for (std::string& file : files) {
      const auto newest = checkpoints::latest_of_run(file);
      if (!newest) continue;
      log::info(settings.section + ".from: reading " + *newest);
      file = *newest;
    }
    return as_lines(files);
  }));
}

}  // namespace

KeySpecs InitSettings::keys() {
  KeySpecs keys = keys::titled(
      "Initial parameters from a file",
      {
          keys::text(
              "init.from", "",
              "File with initial parameters: a checkpoint, .safetensors, .pt, .pth, .npz or .h5 file, a folder of "
              "timm, or a run (its latest checkpoint is read). Of several files, separated by commas, later ones "
              "replace tensors of earlier ones. Ignored "
              "when the run resumes"),
          weights_key(
              "init.weights",
              "Weights to read if init.from contains trained ones and their average, as a checkpoint or a .pth file "
              "with state_dict_ema or model_ema, or of mmengine or Lightning"),
          keys::choice(
              "init.head", "keep",
              "Last layer of the model: keep = take it from the file, which must have the same number of classes; "
              "reset = leave it at its own initial values",
              {"keep", "reset"}),
          keys::expert(keys::boolean(
              "init.adapt_channels", "false",
              "Adapt the first convolution if the file has another number of input channels: one channel is the "
              "sum of all; otherwise, the channels are repeated and scaled")),
          keys::expert(keys::boolean("init.resize_positions", "true",
                                     "Resize learned positions (bicubic) if the file has another grid of patches")),
          keys::expert(keys::choice("init.family", "auto",
                                    "Library that defines the parameter names of the file. auto = find it by the names",
                                    {"auto", "torchvision", "timm"})),
          keys::boolean("init.partial", "false",
                        "Load only the parameters that match by name and shape. The others keep their initial values"),
          keys::expert(keys::texts(
              "init.rename", "",
              "FROM=TO: replace the prefix FROM by TO in the parameter names of the file. re:FROM=TO replaces "
              "every match of a regular expression; $1 in TO is a group. Rules apply one after another")),
      });
  for (KeySpec& key : keys) {
    if (key.name != "init.from") key = keys::not_read_by(key, "init.from", {""});
  }
  return keys;
}

InitSettings InitSettings::from(const Section& init) {
  const std::string& from = init.text("from");
  if (from.empty()) return {};  // nothing else is used
  std::vector<std::string> files = std::filesystem::exists(from) ? std::vector{from} : words_in(from);
  for (std::string& file : files) {
    const std::string weights = checkpoints::weights_file_in(file);
    if (!weights.empty()) file = weights;
  }
  return {.files = std::move(files),
          .weights = init.text("weights"),
          .weights_cited_as = init.cite("weights"),
          .is_partial = init.boolean("partial"),
          .resets_head = init.text("head") == "reset",
          .adapts_channels = init.boolean("adapt_channels"),
          .resizes_positions = init.boolean("resize_positions"),
          .family = init.text("family"),
          .renames = renames_of(init)};
}

InitDifferences init_model(
    const mpi::Communicator& world, const models::Model& model, InitSettings settings,
    const std::function<void(const std::vector<NamedTensor>&, const std::function<void(const NamedTensor&)>&)>& write,
    const std::function<void(const Archive&)>& check) {
  const models::Anatomy& anatomy = model.anatomy();
  const mpi::Communicator host = world.split_by_host();
  settings.files = with_latest_checkpoints(world, settings);
  std::vector<std::string> own;
  world.all_or_throw(
      [&] { std::copy_if(settings.files.begin(), settings.files.end(), std::back_inserter(own), is_checkpoint); });
  const HostWeights weights(world, host, own);  // which the source refers to
  Source source;
  world.all_or_throw([&] {
    if (settings.resets_head && anatomy.head.empty()) {
      throw ConfigError("init.head=reset: this model does not name its last layer; use init.partial");
    }
    source = read_source_of(settings, model, {host, weights, check});
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
    if (how != Fit::none) {
      const StoredTensor& saved = source.stored.at(live.name);
      live.tensor.copy_(adapted(saved, live.tensor, how, anatomy));
      checkpoints::release_pages(*saved.array);
    }
    if (!source.stored.contains(live.name) && is_counter(live.name)) live.tensor.zero_();
  };
  const std::vector<NamedTensor> parameters = parameters_of(model);
  write(parameters, take);
  for (const NamedTensor& buffer : buffers_of(model)) take(buffer);
  world.all_or_throw([&] {
    for (const Archive& archive : source.archives) checkpoints::require_unchanged(archive);
  });

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

InitDifferences init_from(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                          const Sections& sections) {
  InitSettings settings = agreed(world, [&] { return InitSettings::from(sections.at("init")); });
  if (settings.files.empty()) return {};
  const auto write = [&wrapper](const auto& parameters, const auto& take) {
    write_divided_parameters(wrapper.store(), parameters, take);
  };
  InitDifferences skipped = init_model(world, wrapper.model(), std::move(settings), write);
  if (!skipped.empty()) {
    log::warning("init.partial skips " + std::to_string(skipped.size()) + " tensors" + table_of(skipped));
  }
  return skipped;
}

bool replaces_all_parameters(const Section& init) {
  return !init.text("from").empty() && !init.boolean("partial") && init.text("head") == "keep";
}

}  // namespace lockstep::engine
