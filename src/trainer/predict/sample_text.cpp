// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/sample_text.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "batch/collate.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_files.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;
using engine::BatchPredictions;
using engine::class_name;

constexpr std::int64_t kMaxColumns = 4096;  // maximum number of columns of one value in a table
constexpr int kProbabilityDigits = 6;

std::string text_of(double probability) { return number_text(probability, kProbabilityDigits); }
std::string text_of(std::int64_t number) { return std::to_string(number); }

/// NaN and infinity, which JSON does not have, are NaN.
double number_of(const std::string& text) {
  return parse_real(text).value_or(std::numeric_limits<double>::quiet_NaN());
}

double rounded(double probability) { return number_of(text_of(probability)); }
std::int64_t rounded(std::int64_t number) { return number; }

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

std::vector<std::int64_t> top_indices(std::span<const double> values, std::int64_t k) {
  std::vector<std::int64_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  const auto middle = indices.begin() + std::min<std::int64_t>(k, std::ssize(values));
  std::partial_sort(indices.begin(), middle, indices.end(), [&values](std::int64_t a, std::int64_t b) {
    const double at_a = values[static_cast<std::size_t>(a)];
    const double at_b = values[static_cast<std::size_t>(b)];
    return at_a != at_b ? at_a > at_b : a < b;
  });
  indices.erase(middle, indices.end());
  return indices;
}

/// The values of one sample: the members of an object of JSON, or the cells of a row of a table.
struct SampleText::Line {
  bool is_table;
  Json members = Json::object();
  std::vector<std::pair<std::string, std::string>> cells = {};  // column and text

  void add(const std::string& name, Json value) {
    if (is_table) {
      cells.emplace_back(name, value.is_string() ? value.get<std::string>() : json_text(value));
    } else {
      members[name] = std::move(value);
    }
  }

  /// @param number  a probability, or an integer
  void add_number(const std::string& name, auto number) {
    if (is_table) {
      cells.emplace_back(name, text_of(number));
    } else {
      members[name] = rounded(number);
    }
  }

  /// A list of numbers, or a column for each class.
  void add_of_classes(const std::string& name, const std::string& column, const auto& numbers, const Task& task) {
    Json list = Json::array();
    for (std::size_t c = 0; c < numbers.size(); ++c) {
      if (is_table) add_number(column + class_name(task.class_names, static_cast<std::int64_t>(c)), numbers[c]);
      if (!is_table) list.push_back(rounded(numbers[c]));
    }
    if (!is_table) members[name] = std::move(list);
  }

  /// Lists as deep as the tensor has dimensions, or a column for each number.
  void add_tensor(const std::string& name, const at::Tensor& tensor) {
    if (!is_table) {
      members[name] = json_of(tensor);
      return;
    }
    if (tensor.numel() > kMaxColumns) {
      throw ConfigError("predict.out: '" + name + "' has " + std::to_string(tensor.numel()) +
                        " numbers per sample, too many for a table; use a file that ends in .npy");
    }
    const at::Tensor flat = tensor.flatten();
    for (std::int64_t j = 0; j < flat.numel(); ++j) {
      cells.emplace_back(flat.numel() == 1 ? name : name + "_" + std::to_string(j), shortest_text(flat[j]));
    }
  }

  /// The name of a value of the model or of the samples, which must not be that of a prediction or of another value.
  /// Columns are compared in the header.
  const std::string& unused(const std::string& name) const {
    static const std::set<std::string> reserved = {
        "index",           "id",     "top",    "labels", "probabilities", "values", "mask", "counts",
        "log_probability", "tokens", "target", "class",  "probability",   "value"};
    if (reserved.contains(name)) refuse_name(name, "a prediction of Lockstep");
    if (members.contains(name)) refuse_name(name, "another value");
    return name;
  }
};

SampleText::SampleText(const PredictSettings& settings, PredictionForm form, Task task, const data::Dataset& dataset)
    : settings_(settings), form_(form), task_(std::move(task)), dataset_(&dataset) {}

/// The classes with their probabilities, for JSON.
void SampleText::add_classes(Line& line, std::span<const double> row) const {
  const auto list_of = [&](const std::vector<std::int64_t>& classes) {
    Json list = Json::array();
    for (const std::int64_t c : classes) {
      Json entry = Json::object();
      if (!task_.class_names.empty()) entry["class"] = class_name(task_.class_names, c);
      entry["index"] = c;
      entry["probability"] = rounded(row[static_cast<std::size_t>(c)]);
      list.push_back(std::move(entry));
    }
    return list;
  };
  line.add("top", list_of(top_indices(row, settings_.top_k)));
  if (is_multilabel()) line.add("labels", list_of(labels_over(row, settings_.threshold)));
}

/// The same for a table, and before them the target, which is empty where there is none.
void SampleText::add_class_cells(Line& line, std::span<const double> row, const at::Tensor& target) const {
  const auto names_of = [this](const std::vector<std::int64_t>& classes) {
    std::vector<std::string> names;
    for (const std::int64_t c : classes) names.push_back(class_name(task_.class_names, c));
    return csv_list(names);
  };
  std::string text;
  if (target.defined() && target.dim() == 0 && target.item<double>() >= 0)
    text = class_name(task_.class_names, target.item<std::int64_t>());
  if (target.defined() && target.dim() == 1) text = names_of(numbers_of_labels(target));
  line.add("target", text);
  if (is_multilabel()) line.add("labels", names_of(labels_over(row, settings_.threshold)));
  int place = 1;
  std::string number;  // suffix, which the first class does not have
  for (const std::int64_t c : top_indices(row, settings_.top_k)) {
    line.add("class" + number, class_name(task_.class_names, c));
    line.add_number("probability" + number, row[static_cast<std::size_t>(c)]);
    number = "_" + std::to_string(++place);
  }
}

SampleText::Line SampleText::line_of(const BatchPredictions& predictions, const batch::Batch& given,
                                     std::int64_t i) const {
  const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
  const at::Tensor target = predictions.target_of(i);
  const bool has_scores = predictions.probabilities.defined();
  const bool is_table = form_ == PredictionForm::csv;
  Line line{.is_table = is_table};
  line.add_number("index", index);
  const std::string id = utf8_text(data::sample_name_of(*dataset_, index));
  if (is_table || !id.empty()) line.add("id", id);
  if (has_scores) {
    const auto row = row_of(predictions.probabilities, i);
    is_table ? add_class_cells(line, row, target) : add_classes(line, row);
    if (settings_.has_probabilities) line.add_of_classes("probabilities", "probability of ", row, task_);
  }
  if (predictions.values.defined()) {
    if (is_table && target.defined()) line.add_tensor("target", target);
    line.add_tensor(is_table ? "value" : "values", predictions.values[i]);
  }
  if (predictions.masks.defined()) {
    line.add_of_classes("counts", "pixels of ", pixel_counts(predictions.masks[i], task_.classes), task_);
    if (!settings_.masks.value.empty()) line.add("mask", mask_name(index));
  }
  if (predictions.log_probabilities.defined()) {
    line.add_number("log_probability", predictions.log_probabilities[i].item<double>());
    line.add_number("tokens", predictions.token_counts[i].item<std::int64_t>());
  }
  for (const auto& [name, tensor] : predictions.others.entries()) line.add_tensor(line.unused(name), tensor[i]);
  for (auto& [name, value] : values_of(given, i)) line.add(line.unused(name), std::move(value));
  const bool is_large = predictions.masks.defined() || predictions.log_probabilities.defined();
  if (is_table || !target.defined() || is_large) return line;
  const bool is_missing = has_scores && target.dim() == 0 && target.item<double>() < 0;
  const bool are_labels = is_multilabel() && target.dim() == 1;
  if (!is_missing) line.add("target", are_labels ? Json(numbers_of_labels(target)) : json_of(target));
  return line;
}

std::string SampleText::lines(const BatchPredictions& predictions, const batch::Batch& given) const {
  std::string text;
  for (std::int64_t i = 0; i < predictions.size(); ++i) {
    const Line line = line_of(predictions, given, i);
    std::vector<std::string> fields;
    for (const auto& [column, cell] : line.cells) fields.push_back(cell);
    text += line.is_table ? csv_record(fields) : json_text(line.members) + "\n";
  }
  return text;
}

std::string SampleText::header(const BatchPredictions& predictions, const batch::Batch& given) const {
  if (form_ == PredictionForm::json_lines) return "";
  std::vector<std::string> fields;
  for (const auto& [column, text] : line_of(predictions, given, 0).cells) {
    const bool is_taken = std::find(fields.begin(), fields.end(), column) != fields.end();
    if (is_taken) refuse_name(column, "another column");
    fields.push_back(column);
  }
  return csv_record(fields);
}

}  // namespace lockstep::trainer
