// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/convert/public_source.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>

#include "ckpt/convert/convert.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/text.hpp"

namespace lockstep::ckpt {

StoredTask task_of(const InspectedFile& source) {
  StoredTask task;
  const std::string text = document_of(source, "/meta/task_json");
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
  const auto config = entries_of(path, document_of(source, path));
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
