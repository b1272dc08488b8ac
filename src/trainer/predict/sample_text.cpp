// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/sample_text.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "batch/sample_values.hpp"
#include "core/text/csv.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "engine/evaluation/class_numbers.hpp"
#include "trainer/predict/ranking.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;
using engine::BatchPredictions;
using engine::class_name;

constexpr std::int64_t kMaxColumns = 4096;  // maximum number of columns of one value in a table
constexpr int kProbabilityDigits = 6;

std::string probability_text(double value) { return number_text(value, kProbabilityDigits); }

/// NaN and infinity, which JSON does not have, are NaN.
double number_of(const std::string& text) {
  return parse_real(text).value_or(std::numeric_limits<double>::quiet_NaN());
}

double rounded(double value) { return number_of(probability_text(value)); }

/// The shortest text that is read back to the same number of its type.
std::string shortest_text(const at::Tensor& number) {
  if (number.scalar_type() == at::kBool) return number.item<bool>() ? "1" : "0";
  if (at::isIntegralType(number.scalar_type(), false)) return std::to_string(number.item<std::int64_t>());
  if (number.scalar_type() == at::kDouble) return fmt::format("{}", number.item<double>());
  return fmt::format("{}", number.to(at::kFloat).item<float>());
}

/// A number, or lists of numbers as deep as the tensor has dimensions.
Json json_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
    if (at::isIntegralType(tensor.scalar_type(), false)) return tensor.item<std::int64_t>();
    return number_of(shortest_text(tensor));
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

/// The values that the batch holds for its sample `i` as lists: names of files and so on. Tensors are left out.
std::vector<std::pair<std::string, Json>> values_of(const batch::Batch& given, std::int64_t i) {
  std::vector<std::pair<std::string, Json>> result;
  for (const auto& [name, value] : given.values()) {
    const batch::ValueList* const values = batch::values_of_samples(value, given.size());
    if (values != nullptr) result.emplace_back(name, json_of((*values)[static_cast<std::size_t>(i)]));
  }
  return result;
}

[[noreturn]] void refuse_name(const std::string& name, const std::string& owner) {
  throw ConfigError("predict.out: the samples or the model have a value named '" + name + "', which is the name of " +
                    owner + "; choose another name");
}

/// The name of a value of the model or of the samples, which must not be that of a prediction.
const std::string& unused(const std::string& name) {
  static const std::set<std::string> reserved = {
      "index",           "id",     "top",    "labels", "probabilities", "values", "mask", "counts",
      "log_probability", "tokens", "target", "class",  "probability",   "value"};
  if (reserved.contains(name)) refuse_name(name, "a prediction of Lockstep");
  return name;
}

std::vector<std::int64_t> labels_over(std::span<const double> probabilities, double threshold) {
  std::vector<std::int64_t> labels;
  for (const std::int64_t c : top_indices(probabilities, std::ssize(probabilities))) {
    if (probabilities[static_cast<std::size_t>(c)] >= threshold) labels.push_back(c);
  }
  return labels;
}

/// Labels [C] of 0 and 1 as the numbers of those that are 1.
std::vector<std::int64_t> numbers_of_labels(const at::Tensor& labels) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t c = 0; c < labels.numel(); ++c) {
    if (labels[c].item<double>() > 0.5) numbers.push_back(c);
  }
  return numbers;
}

std::vector<std::int64_t> pixel_counts(const at::Tensor& mask, std::int64_t classes) {
  const at::Tensor counts = at::bincount(mask.flatten(), {}, classes);
  const auto* const begin = counts.const_data_ptr<std::int64_t>();
  return {begin, begin + counts.numel()};
}

std::string json_text(const Json& line) {
  // Bytes of file names that are not UTF-8 are replaced.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::span<const double> row_of(const at::Tensor& matrix, std::int64_t i) {
  const auto columns = static_cast<std::size_t>(matrix.size(1));
  return {matrix.const_data_ptr<double>() + i * matrix.size(1), columns};
}

std::string mask_name(std::int64_t index) { return fmt::format("{:08}.png", index); }

SampleText::SampleText(const PredictSettings& settings, PredictionForm form, Task task, const data::Dataset& dataset)
    : settings_(settings), form_(form), task_(std::move(task)), dataset_(&dataset) {}

std::string SampleText::json_line(const BatchPredictions& predictions, const batch::Batch& given,
                                  std::int64_t i) const {
  const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
  Json line{{"index", index}};
  if (const std::string id = data::sample_name_of(*dataset_, index); !id.empty()) line["id"] = utf8_text(id);
  const auto list_of = [&](std::span<const double> probabilities, const std::vector<std::int64_t>& classes) {
    Json list = Json::array();
    for (const std::int64_t c : classes) {
      Json entry = Json::object();
      if (!task_.class_names.empty()) entry["class"] = class_name(task_.class_names, c);
      entry["index"] = c;
      entry["probability"] = rounded(probabilities[static_cast<std::size_t>(c)]);
      list.push_back(std::move(entry));
    }
    return list;
  };
  const bool is_multilabel = task_.kind == TaskKind::multilabel;
  const bool has_scores = predictions.probabilities.defined();
  if (has_scores) {
    const auto row = row_of(predictions.probabilities, i);
    line["top"] = list_of(row, top_indices(row, settings_.top_k));
    if (is_multilabel) line["labels"] = list_of(row, labels_over(row, settings_.threshold));
    if (settings_.has_probabilities) {
      Json all = Json::array();
      for (const double probability : row) all.push_back(rounded(probability));
      line["probabilities"] = std::move(all);
    }
  }
  if (predictions.values.defined()) line["values"] = json_of(predictions.values[i]);
  if (predictions.masks.defined()) {
    line["counts"] = pixel_counts(predictions.masks[i], task_.classes);
    if (!settings_.masks.value.empty()) line["mask"] = mask_name(index);
  }
  if (predictions.log_probabilities.defined()) {
    line["log_probability"] = rounded(predictions.log_probabilities[i].item<double>());
    line["tokens"] = predictions.token_counts[i].item<std::int64_t>();
  }
  const auto add = [&line](const std::string& name, Json value) {
    if (line.contains(unused(name))) refuse_name(name, "another value");
    line[name] = std::move(value);
  };
  for (const auto& [name, tensor] : predictions.others.entries()) add(name, json_of(tensor[i]));
  for (auto& [name, value] : values_of(given, i)) add(name, std::move(value));
  const bool has_small_target =
      predictions.target.defined() && !predictions.masks.defined() && !predictions.log_probabilities.defined();
  if (has_small_target) {
    const at::Tensor target = predictions.target[i];
    const bool is_missing = has_scores && target.dim() == 0 && target.item<double>() < 0;
    if (is_missing) return json_text(line) + "\n";
    const bool are_labels = is_multilabel && target.dim() == 1;
    line["target"] = are_labels ? Json(numbers_of_labels(target)) : json_of(target);
  }
  return json_text(line) + "\n";
}

std::vector<SampleText::Cell> SampleText::cells(const BatchPredictions& predictions, const batch::Batch& given,
                                                std::int64_t i) const {
  const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
  std::vector<Cell> cells = {{"index", std::to_string(index)},
                             {"id", utf8_text(data::sample_name_of(*dataset_, index))}};
  const auto add_tensor = [&cells](const std::string& name, const at::Tensor& tensor) {
    if (tensor.numel() > kMaxColumns) {
      throw ConfigError("predict.out: '" + name + "' has " + std::to_string(tensor.numel()) +
                        " numbers per sample, too many for a table; use a file that ends in .npy");
    }
    const at::Tensor flat = tensor.flatten();
    for (std::int64_t j = 0; j < flat.numel(); ++j) {
      cells.push_back({flat.numel() == 1 ? name : name + "_" + std::to_string(j), shortest_text(flat[j])});
    }
  };
  const auto names_of = [this](const std::vector<std::int64_t>& classes) {
    std::vector<std::string> names;
    for (const std::int64_t c : classes) names.push_back(class_name(task_.class_names, c));
    return csv_list(names);
  };
  const bool has_scores = predictions.probabilities.defined();
  const bool is_multilabel = task_.kind == TaskKind::multilabel;
  if (has_scores) {
    const at::Tensor target = predictions.target_of(i);
    const bool has_target = target.defined();
    std::string text;  // text of the target; empty where there is none
    if (has_target && target.dim() == 0 && target.item<double>() >= 0)
      text = class_name(task_.class_names, target.item<std::int64_t>());
    if (has_target && target.dim() == 1) text = names_of(numbers_of_labels(target));
    cells.push_back({"target", text});
    const auto row = row_of(predictions.probabilities, i);
    if (is_multilabel) cells.push_back({"labels", names_of(labels_over(row, settings_.threshold))});
    int place = 1;
    for (const std::int64_t c : top_indices(row, settings_.top_k)) {
      const std::string number = place == 1 ? "" : "_" + std::to_string(place);
      cells.push_back({"class" + number, class_name(task_.class_names, c)});
      cells.push_back({"probability" + number, probability_text(row[static_cast<std::size_t>(c)])});
      ++place;
    }
    for (std::size_t c = 0; settings_.has_probabilities && c < row.size(); ++c) {
      cells.push_back(
          {"probability of " + class_name(task_.class_names, static_cast<std::int64_t>(c)), probability_text(row[c])});
    }
  }
  if (predictions.values.defined()) {
    if (predictions.target.defined()) add_tensor("target", predictions.target[i]);
    add_tensor("value", predictions.values[i]);
  }
  if (predictions.masks.defined()) {
    const std::vector<std::int64_t> counts = pixel_counts(predictions.masks[i], task_.classes);
    for (std::size_t c = 0; c < counts.size(); ++c) {
      cells.push_back(
          {"pixels of " + class_name(task_.class_names, static_cast<std::int64_t>(c)), std::to_string(counts[c])});
    }
    if (!settings_.masks.value.empty()) cells.push_back({"mask", mask_name(index)});
  }
  if (predictions.log_probabilities.defined()) {
    cells.push_back({"log_probability", probability_text(predictions.log_probabilities[i].item<double>())});
    cells.push_back({"tokens", std::to_string(predictions.token_counts[i].item<std::int64_t>())});
  }
  for (const auto& [name, tensor] : predictions.others.entries()) add_tensor(unused(name), tensor[i]);
  for (const auto& [name, value] : values_of(given, i)) {
    cells.push_back({unused(name), value.is_string() ? value.get<std::string>() : json_text(value)});
  }
  return cells;
}

std::string SampleText::lines(const BatchPredictions& predictions, const batch::Batch& given) const {
  std::string text;
  for (std::int64_t i = 0; i < predictions.size(); ++i) {
    if (form_ == PredictionForm::json_lines) {
      text += json_line(predictions, given, i);
      continue;
    }
    std::vector<std::string> fields;
    for (const Cell& cell : cells(predictions, given, i)) fields.push_back(cell.text);
    text += csv_record(fields);
  }
  return text;
}

std::string SampleText::header(const BatchPredictions& predictions, const batch::Batch& given) const {
  if (form_ == PredictionForm::json_lines) return "";
  std::vector<std::string> fields;
  for (const Cell& cell : cells(predictions, given, 0)) {
    const bool is_taken = std::find(fields.begin(), fields.end(), cell.column) != fields.end();
    if (is_taken) refuse_name(cell.column, "another column");
    fields.push_back(cell.column);
  }
  return csv_record(fields);
}

}  // namespace lockstep::trainer
