// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/predictions.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>

#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "batch/sample_values.hpp"
#include "engine/measures/evaluation_mode.hpp"
#include "engine/measures/progress_lines.hpp"

namespace lockstep::engine {

namespace {

using Json = nlohmann::ordered_json;

/// A number, or lists of numbers as deep as the tensor has dimensions.
Json json_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
    if (at::isIntegralType(tensor.scalar_type(), false)) return tensor.item<std::int64_t>();
    return tensor.item<double>();
  }
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) list.push_back(json_of(tensor[i]));
  return list;
}

/// A value of one sample; null = it has no form in JSON.
Json json_of(const batch::Value& value) {
  if (value.is<std::int64_t>()) return value.as<std::int64_t>();
  if (value.is<double>()) return value.as<double>();
  if (value.is<std::string>()) return value.as<std::string>();
  if (value.is<at::Tensor>()) return json_of(value.as<at::Tensor>());
  if (value.is<batch::ValueList>()) {
    Json list = Json::array();
    for (const batch::Value& each : value.as<batch::ValueList>()) list.push_back(json_of(each));
    return list;
  }
  if (value.is<batch::ValueMap>()) {
    Json map = Json::object();
    for (const auto& [name, each] : value.as<batch::ValueMap>()) map[name] = json_of(each);
    return map;
  }
  return nullptr;
}

/// Adds what the batch holds for its sample `i` as a list: names of files and so on. Tensors are left out.
void add_values(Json& line, const batch::Batch& given, std::int64_t i) {
  for (const auto& [name, value] : given.values()) {
    const batch::ValueList* const values = batch::values_of_samples(value, given.size());
    if (values != nullptr) line[name] = json_of((*values)[static_cast<std::size_t>(i)]);
  }
}

/// The name of the predicted class, where classes have names.
void add_class_name(Json& line, const Task& task) {
  const auto found = line.find("classes");
  if (found == line.end() || !found->is_number_integer()) return;
  const auto predicted = found->get<std::int64_t>();
  if (predicted < 0 || predicted >= std::ssize(task.class_names)) return;
  line["class_name"] = task.class_names[static_cast<std::size_t>(predicted)];
}

std::string lines_of(parallel::DistributedDataParallel& wrapper, const batch::Batch& given,
                     const data::Dataset& dataset, const Task& task) {
  models::Predictions predictions = wrapper.test_step(given);
  for (auto& [name, tensor] : predictions.entries()) {
    tensor = tensor.cpu();
    if (tensor.dim() > 0 && tensor.size(0) == given.size()) continue;
    throw DataError("prediction '" + name + "' must have one row for each of the " + std::to_string(given.size()) +
                    " samples");
  }
  std::string lines;
  for (std::int64_t i = 0; i < given.size(); ++i) {
    const std::int64_t index = given.draws()[static_cast<std::size_t>(i)].index;
    Json line{{"index", index}};
    if (const std::string name = dataset.sample_name(index); !name.empty()) line["name"] = name;
    for (const auto& [name, tensor] : predictions.entries()) line[name] = json_of(tensor[i]);
    add_class_name(line, task);
    add_values(line, given, i);
    // Bytes of file names that are not UTF-8 are replaced.
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace

std::string predictions_of(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                           const data::Dataset& dataset, const EvaluationLimits& limits) {
  const std::int64_t batches = batches_of(dataset, limits);
  const data::Share share = data::share_of(batches, world.rank(), world.size());
  std::string lines;
  wrapper.synchronize_buffers();
  const EvaluationMode evaluation(wrapper.model());
  ProgressLines progress("predictions", share.count);
  const Task task = dataset.task();
  world.all_or_throw([&] {
    for (std::int64_t batch = share.begin; batch < share.begin + share.count; ++batch) {
      lines += lines_of(wrapper, batch_in_order(dataset, limits, batch), dataset, task);
      progress.show(batch - share.begin + 1);
    }
    const std::int64_t max = data::share_of(batches, 0, world.size()).count;
    for (std::int64_t i = share.count; wrapper.has_collective_forward() && i < max; ++i) {
      wrapper.test_step(batch_in_order(dataset, limits, 0));
    }
  });
  std::string all;
  for (const std::string& of_rank : world.gather(lines)) all += of_rank;
  return all;
}

}  // namespace lockstep::engine
