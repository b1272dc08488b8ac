// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "ckpt/convert/convert.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/text_files.hpp"
#include "families/names.hpp"
#include "families/public_model.hpp"

namespace lockstep::ckpt {

namespace {

using checkpoints::ExportKind;
using families::PublicWeights;

/// The trained weights, or their average.
struct Weights {
  std::string group;  ///< "/model" or "/ema"
  std::string words;  ///< "trained weights"
};

Weights chosen_weights(const InspectedFile& source, const Request& request) {
  const std::string& only = request.text("only", "auto");
  if (only != "auto" && only != "model" && only != "ema") {
    throw usage_error("--only " + escaped(only) + ": with --as, it must be model or ema");
  }
  const auto is_averaged = [](const FileArray& info) { return info.path.starts_with("/ema/params/"); };
  const bool has_average = std::ranges::any_of(source.arrays(), is_averaged);
  if (only == "ema" && !has_average) {
    throw Failure(Exit::not_found, escaped(source.path()) + ": it contains no average of the weights (--only ema)");
  }
  return has_average && only != "model" ? Weights{"/ema", "averaged weights"} : Weights{"/model", "trained weights"};
}

/// The lines of the file of --class-names.
std::vector<std::string> names_in_file(const std::string& path) {
  std::ifstream file(path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> names = plain_lines(bytes);
  if (names.empty()) throw Failure(Exit::io, escaped(path) + ": it cannot be read, or contains no class names");
  return names;
}

/// The arrays with the names and shapes of the library.
std::vector<checkpoints::NamedArray> public_arrays(const InspectedFile& source, const Weights& weights,
                                                   const families::PublicModel& model) {
  std::vector<std::string> names;
  std::map<std::string, const FileArray*> by_name;
  for (const ModelArray& array : model_arrays(source, weights.group)) {
    names.push_back(array.name);
    by_name.emplace(array.name, array.info);
  }
  std::vector<checkpoints::NamedArray> arrays;
  for (const families::PublicName& name : families::public_names(model, names)) {
    checkpoints::Array array = source.read(*by_name.at(name.ours));
    array.shape = families::to_public_shape(name.operation, array.shape);
    arrays.push_back({name.theirs, std::move(array)});
  }
  return arrays;
}

std::vector<std::string> class_names(const Request& request, const StoredTask& task, std::int64_t classes) {
  if (!request.has("class-names")) {
    return std::ssize(task.class_names) == classes ? task.class_names : std::vector<std::string>();
  }
  std::vector<std::string> names = names_in_file(request.text("class-names"));
  if (std::ssize(names) != classes) {
    throw usage_error("--class-names " + escaped(request.text("class-names")) + ": it contains " +
                      std::to_string(names.size()) + " names, but the model has " + std::to_string(classes) +
                      " classes");
  }
  return names;
}

/// The statistics that the run measured for `normalize,mean=auto`; empty if it measured nothing.
checkpoints::MeasuredStatistics measured_statistics(const InspectedFile& source) {
  const auto numbers_at = [&source](const std::string& path) {
    std::vector<double> numbers;
    for (const FileArray& info : source.arrays()) {
      if (info.path != path || info.dtype != DType::float64) continue;
      const checkpoints::Array array = source.read(info);
      numbers.resize(array.bytes.size() / sizeof(double));
      std::memcpy(numbers.data(), array.bytes.data(), numbers.size() * sizeof(double));
    }
    return numbers;
  };
  return {.mean = numbers_at("/data/statistics/mean"), .deviation = numbers_at("/data/statistics/std")};
}

/// The file and the format of an export.
struct Target {
  std::string library;
  std::string path;
  ExportKind kind = ExportKind::safetensors;
  std::string array_file;  ///< the file with the arrays
  std::string load_call;   ///< Python call that loads the model; empty = the model's usual one
};

Target target_of(const Request& request) {
  Target target{.library = library_of(request), .path = request.text("to"), .array_file = {}, .load_call = {}};
  for (const char* const option : {"rename", "filter"}) {
    if (request.has(option)) throw usage_error(std::string("--as cannot be combined with --") + option);
  }
  const auto kind = checkpoints::export_kind_of(target.path);
  if (target.library == "timm") {
    if (target.path.empty()) throw usage_error("convert --as timm needs --to FOLDER");
    if (kind) throw usage_error("--to " + escaped(target.path) + ": --as timm writes a folder, not a file");
    target.array_file = target.path + "/model.safetensors";
    target.load_call = "timm.create_model(\"local-dir:" + target.path + "\", pretrained=True)";
    return target;
  }
  if (kind != ExportKind::safetensors && kind != ExportKind::pytorch) {
    throw usage_error("convert --as " + target.library + " needs --to FILE, ending in .pth, .pt or .safetensors");
  }
  target.kind = *kind;
  target.array_file = target.path;
  return target;
}

void print_result(const Request& request, const InspectedFile& source, const Target& target,
                  const PublicWeights& weights, const Weights& chosen) {
  const std::string call = target.load_call.empty() ? families::python_call(weights.model) : target.load_call;
  if (request.wants_json()) {
    OrderedJson root = {{"from", escaped(source.path())},
                        {"to", escaped(target.path)},
                        {"as", target.library},
                        {"weights", chosen.group == "/ema" ? "ema" : "model"},
                        {"call", call},
                        {"remarks", weights.input.remarks},
                        {"arrays", OrderedJson::array()}};
    for (const auto& array : weights.arrays) root["arrays"].push_back(escaped(array.name));
    return print(root);
  }
  std::string text =
      fmt::format("{}: {} arrays, {}, {}, read back and equal\nload with {}\n", escaped(target.path),
                  weights.arrays.size(), chosen.words, exact_bytes(bytes_of(target.array_file)), escaped(call));
  for (const std::string& remark : weights.input.remarks) text += "note: " + escaped(remark) + "\n";
  print(text);
}

}  // namespace

Exit convert_public(const Request& request) {
  const Target target = target_of(request);
  const InspectedFile source = open_source(request.paths[0]);
  require_own(source, "--as");
  const Weights chosen = chosen_weights(source, request);
  PublicWeights weights{.model = public_model_of(source, request, chosen.group)};
  weights.class_names = class_names(request, task_of(source), weights.model.classes);
  weights.input = checkpoints::input_statistics(config_of(source), weights.model.channels, measured_statistics(source));
  weights.arrays = public_arrays(source, chosen, weights.model);
  cast_arrays(weights.arrays, request);
  if (target.library == "timm") {
    families::write_timm_folder(target.path, weights);
  } else {
    families::write_state_dict(target.path, target.kind, weights);
  }
  verify_written(target.array_file, target.kind, weights.arrays);

  print_result(request, source, target, weights, chosen);
  return Exit::ok;
}

}  // namespace lockstep::ckpt
