// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/convert/convert.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoints/store/checkpoint_index.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "ckpt/reading/values.hpp"
#include "core/text/parameter_names.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::ckpt {

namespace {

using checkpoints::ExportKind;

/// A choice of --only: beginnings of paths, none for everything.
struct PartOption {
  std::string name;
  std::vector<std::string> groups;
};

const std::vector<PartOption>& parts() {
  static const std::vector<PartOption> rows = {
      {"model", {"/model/params/", "/model/buffers/"}}, {"ema", {"/ema/params/", "/ema/buffers/"}}, {"all", {""}}};
  return rows;
}

/// The group that `path` lies in, or none.
const std::string* group_of(const std::string& path, const PartOption& part) {
  const auto found =
      std::ranges::find_if(part.groups, [&path](const std::string& group) { return path.starts_with(group); });
  return found == part.groups.end() ? nullptr : &*found;
}

Renames renames_of(const Request& request) {
  try {
    return parse_renames(request.texts("rename"), "--rename");
  } catch (const ConfigError& error) {
    throw usage_error(error.what());
  }
}

std::vector<checkpoints::NamedArray> chosen_arrays(const InspectedFile& source, const Request& request) {
  const PartOption& part = find_row(parts(), request.text("only", "model"), "--only");
  const Renames renames = renames_of(request);
  std::vector<checkpoints::NamedArray> arrays;
  std::map<std::string, std::string> origins;
  for (const FileArray* info : select(source, request)) {
    const std::string* const group = source.is_own() ? group_of(info->path, part) : &parts().back().groups[0];
    if (group == nullptr) continue;
    const std::string name = new_name(name_in(info->path, *group), renames);
    const auto [origin, is_new] = origins.emplace(name, info->path);
    if (!is_new) {
      throw usage_error("'" + escaped(name) + "' is the name of two arrays: " + escaped(origin->second) + " and " +
                        escaped(info->path));
    }
    arrays.push_back({name, source.read(*info)});
  }
  if (arrays.empty()) throw Failure(Exit::not_found, escaped(source.path()) + ": the array to convert does not exist");
  return arrays;
}

}  // namespace

std::string name_in(const std::string& path, const std::string& group) {
  const std::string rest = path.substr(group.empty() ? 1 : group.size());
  return rest.find('/') == std::string::npos ? checkpoints::decode_name(rest) : rest;
}

void verify_written(const std::string& path, ExportKind kind, const std::vector<checkpoints::NamedArray>& arrays) {
  const InspectedFile written = InspectedFile::open(path);
  std::map<std::string, const FileArray*> by_name;
  for (const FileArray& info : written.arrays()) by_name.emplace(name_in(info.path, ""), &info);
  for (const auto& [name, array] : arrays) {
    const auto found = by_name.find(name);
    const bool is_widened = kind == ExportKind::npz && array.dtype == DType::bfloat16;
    const bool is_same = found != by_name.end() && found->second->shape == array.shape &&
                         (is_widened || (found->second->dtype == array.dtype &&
                                         written.digest(*found->second) == checkpoints::array_digest(array.bytes)));
    if (!is_same)
      throw Failure(Exit::corrupt, escaped(path) + ": '" + escaped(name) + "' differs after it was written and read");
  }
}

void cast_arrays(std::vector<checkpoints::NamedArray>& arrays, const Request& request) {
  if (!request.has("dtype")) return;
  const DType dtype = dtype_from_name(request.text("dtype"));
  if (!is_real_floating(dtype)) throw usage_error("--dtype must be float32, float64, float16 or bfloat16");
  for (auto& [name, array] : arrays) {
    if (!is_real_floating(array.dtype) || array.dtype == dtype) continue;
    Array converted = cast_to(array, dtype);
    if (overflows(array, converted)) {
      throw Failure(Exit::incompatible,
                    "'" + escaped(name) + "' contains a value that is too large for " + std::string(name_of(dtype)));
    }
    array = std::move(converted);
  }
}

Exit convert(const Request& request) {
  if (request.text("only") == "optimizer") return convert_optimizer(request);
  if (request.has("as")) return convert_public(request);
  if (request.has("class-names")) throw usage_error("--class-names requires --as");
  const std::string target = request.text("to");
  if (target.empty()) throw usage_error("convert needs --to FILE, ending in .safetensors, .pt, .npz or .h5");
  const auto kind = checkpoints::export_kind_of(target);
  if (!kind) throw usage_error("--to " + escaped(target) + ": the name must end in .safetensors, .pt, .npz or .h5");
  const InspectedFile source = open_source(request.paths[0]);
  auto arrays = chosen_arrays(source, request);
  cast_arrays(arrays, request);
  checkpoints::write_foreign(target, *kind, arrays, {{"format", "pt"}});
  verify_written(target, *kind, arrays);
  OrderedJson root = {{"from", escaped(source.path())}, {"to", escaped(target)}, {"arrays", OrderedJson::array()}};
  for (const auto& array : arrays) root["arrays"].push_back(escaped(array.name));
  request.wants_json() ? print(root)
                       : print(fmt::format("{}: {} arrays, {}, read back and equal\n", escaped(target), arrays.size(),
                                           exact_bytes(bytes_of(target))));
  return Exit::ok;
}

StoredTask task_of(const InspectedFile& source) {
  StoredTask task;
  const std::string text = source.document("/meta/task_json");
  if (text.empty()) return task;  // the checkpoint is of an earlier version
  try {
    const OrderedJson json = OrderedJson::parse(text);
    task.sample_shape = json.at("sample_shape").get<std::vector<std::int64_t>>();
    task.class_names = json.at("class_names").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError(source.path(), "/meta/task_json", "the description of the task is malformed");
  }
  return task;
}

Entries config_of(const InspectedFile& source) {
  const std::string path = "/meta/config_ini";
  const auto config = entries_of(path, source.document(path));
  if (!config || !config->contains("model.name")) {
    throw Failure(Exit::incompatible,
                  escaped(source.path()) + ": --as needs the configuration of the run, which it does not contain");
  }
  return *config;
}

std::vector<ModelArray> model_arrays(const InspectedFile& source, const std::string& group) {
  std::vector<ModelArray> arrays;
  for (const std::string part : {"/params/", "/buffers/"}) {
    for (const FileArray& info : source.arrays()) {
      if (info.path.starts_with(group + part)) arrays.push_back({name_in(info.path, group + part), &info});
    }
  }
  return arrays;
}

std::string library_of(const Request& request) {
  const std::string& library = request.text("as");
  const std::vector<std::string> known = families::library_names(*request.known_families);
  if (std::ranges::count(known, library) > 0) return library;
  throw usage_error("--as " + escaped(library) + ": it must be " + joined(known, " or "));
}

families::PublicModel public_model_of(const InspectedFile& source, const Request& request, const std::string& group) {
  const std::string library = library_of(request);
  const Entries config = config_of(source);
  const StoredTask task = task_of(source);
  families::TrainedModel model{.name = config.at("model.name")};
  constexpr std::string_view kSection = "model.";
  for (const auto& [key, value] : config) {
    if (key.starts_with(kSection)) model.keys.emplace(key.substr(kSection.size()), value);
  }
  for (const ModelArray& array : model_arrays(source, group)) model.shapes.emplace(array.name, array.info->shape);
  if (task.sample_shape.size() == 3) {
    model.channels = task.sample_shape[0];
    model.height = task.sample_shape[1];
    model.width = task.sample_shape[2];
  }
  return families::public_model(library, model, *request.known_families);
}

void require_own(const InspectedFile& source, const std::string& option) {
  if (source.is_own()) return;
  throw usage_error(escaped(source.path()) + ": " + option + " needs a checkpoint of Lockstep, but it is " +
                    source.kind());
}

}  // namespace lockstep::ckpt
