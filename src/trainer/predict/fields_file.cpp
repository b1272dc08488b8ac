// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/fields_file.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "arrays/netcdf_file.hpp"
#include "core/text/text.hpp"
#include "data/fields/field_output.hpp"

namespace lockstep::trainer {

namespace {

using arrays::NetcdfVariable;
using arrays::NumberKind;
using arrays::NumberType;

constexpr NumberType kFloat32 = {.kind = NumberKind::real, .bytes = 4};
constexpr NumberType kFloat64 = {.kind = NumberKind::real, .bytes = 8};
constexpr NumberType kInt32 = {.kind = NumberKind::signed_integer, .bytes = 4};

arrays::AttributeValue text_value(const std::string& text) { return std::vector<std::string>{text}; }

/// Names of which each is used once.
class UniqueNames {
 public:
  std::string add(const std::string& wanted) {
    const std::string name = arrays::netcdf_name(wanted);
    std::string unique = name;
    for (int i = 2; !used_.insert(unique).second; ++i) unique = name + "_" + std::to_string(i);
    return unique;
  }

 private:
  std::set<std::string> used_;
};

/// Whether a later sample always has a later time, so that the samples are an axis of time.
bool are_times_increasing(const data::FieldDataset& dataset, const data::OutputTimes& times, std::int64_t count) {
  double last = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < count; ++i) {
    const double time = times.valid(dataset.place(i)).front();
    if (!(time > last)) return false;
    last = time;
  }
  return true;
}

/// The paths of the input files without the folders that all of them have.
std::vector<std::string> distinct_paths(const data::FieldDescription& description) {
  std::vector<std::string> paths;
  for (const data::FieldPair& pair : description.pairs) paths.push_back(utf8_text(pair.inputs.path));
  std::size_t equal = paths.front().size();
  for (const std::string& path : paths) {
    const auto difference = std::ranges::mismatch(paths.front(), path).in1 - paths.front().begin();
    equal = std::min(equal, static_cast<std::size_t>(difference));
  }
  const std::size_t folder = paths.front().substr(0, equal).rfind('/') + 1;  // 0 = there is none
  for (std::string& path : paths) path.erase(0, folder);
  return paths;
}

/// A number of each sample, or of each of its steps, such as its time.
struct SampleNumbers {
  NetcdfVariable variable;
  std::function<std::vector<double>(const data::FieldPlace& place)> numbers_of;
};

template <class Number>
std::string bytes_as(const std::vector<double>& numbers) {
  std::string bytes;
  for (const double number : numbers) {
    const auto stored = static_cast<Number>(number);
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return bytes;
}

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

class FieldsFile::Impl {
 public:
  Impl(const data::FieldDataset& dataset, const Task& task, FieldsFileOptions options)
      : dataset_(&dataset),
        options_(std::move(options)),
        output_(data::output_of(dataset.description(), task.classes)),
        times_(dataset.description(), output_) {
    lay_out();
  }

  void open(bool is_owner) {
    file_.emplace(contents_, arrays::NewNetcdfFile::Destination{
                                 .path = options_.part, .final_path = options_.path, .is_owner = is_owner});
  }
  arrays::NewNetcdfFile& file() { return *file_; }

  void write(const engine::BatchPredictions& predictions, const batch::Batch& given);

 private:
  void lay_out();
  void add_numbers(NetcdfVariable variable, bool is_coordinate,
                   std::function<std::vector<double>(const data::FieldPlace& place)> numbers_of);
  void add_times();
  void add_places();
  void add_fields();
  at::Tensor rows_of(const engine::BatchPredictions& predictions, const batch::Batch& given) const;

  const data::FieldDataset* dataset_;
  FieldsFileOptions options_;
  data::FieldOutput output_;
  data::OutputTimes times_;
  arrays::NetcdfContents contents_;
  UniqueNames names_;
  std::string samples_;                   ///< name of the axis of the samples
  std::string steps_;                     ///< name of the axis of the steps; "" = there is one step
  std::vector<std::string> space_;        ///< names of the axes of space
  std::vector<std::string> coordinates_;  ///< names of the variables that are further coordinates of the fields
  std::vector<SampleNumbers> numbers_;
  std::vector<NetcdfVariable> fields_;  ///< one for each of output_.variables
  std::optional<arrays::NewNetcdfFile> file_;
};

/// @param is_coordinate  the variable has the name of its axis
void FieldsFile::Impl::add_numbers(NetcdfVariable variable, bool is_coordinate,
                                   std::function<std::vector<double>(const data::FieldPlace& place)> numbers_of) {
  if (!is_coordinate) coordinates_.push_back(variable.name);
  contents_.variables.push_back(variable);
  numbers_.push_back({.variable = std::move(variable), .numbers_of = std::move(numbers_of)});
}

void FieldsFile::Impl::add_times() {
  if (!output_.has_times()) return;
  const bool is_axis = samples_ == "time";
  arrays::Attributes attributes = output_.time_attributes;
  attributes["standard_name"] = text_value("time");
  if (!is_axis) attributes["long_name"] = text_value("time of the prediction");
  const std::vector<std::string> axes =
      steps_.empty() ? std::vector<std::string>{samples_} : std::vector<std::string>{samples_, steps_};
  add_numbers({.name = is_axis ? samples_ : names_.add("time"),
               .dimensions = axes,
               .type = kFloat64,
               .attributes = attributes,
               .has_gaps = !is_axis},
              is_axis, [this](const data::FieldPlace& place) { return times_.valid(place); });
  attributes["standard_name"] = text_value("forecast_reference_time");
  attributes["long_name"] = text_value("time of the last step of the input");
  attributes.erase("axis");
  add_numbers({.name = names_.add("forecast_reference_time"),
               .dimensions = {samples_},
               .type = kFloat64,
               .attributes = attributes},
              false, [this](const data::FieldPlace& place) { return std::vector<double>{times_.reference(place)}; });
}

/// The positions of the samples in the input files.
void FieldsFile::Impl::add_places() {
  const auto add = [&](const std::string& name, const std::string& meaning, const auto& number_of) {
    NetcdfVariable variable{.name = names_.add(name),
                            .dimensions = {samples_},
                            .type = kInt32,
                            .attributes = {{"long_name", text_value(meaning)}}};
    add_numbers(std::move(variable), false, [number_of](const data::FieldPlace& place) {
      return std::vector<double>{static_cast<double>(number_of(place))};
    });
  };
  const data::FieldDescription& description = dataset_->description();
  if (description.pairs.size() > 1) {
    add("file", "number of the input file in the attribute files",
        [](const data::FieldPlace& place) { return place.file; });
    contents_.variables.back().attributes["files"] = text_value(joined(distinct_paths(description), " "));
  }
  const bool has_trajectories =
      std::ranges::any_of(description.pairs, [](const data::FieldPair& pair) { return pair.inputs.trajectories > 1; });
  if (has_trajectories) {
    add("trajectory", "number of the trajectory or row in its file",
        [](const data::FieldPlace& place) { return place.trajectory; });
  }
  if (description.pairs.front().inputs.has_time) {
    add("first_step", "number of the first step of the input in its file",
        [](const data::FieldPlace& place) { return place.start; });
  }
}

void FieldsFile::Impl::add_fields() {
  for (const data::OutputVariable& variable : output_.variables) {
    NetcdfVariable field{.name = names_.add(variable.name),
                         .dimensions = {samples_},
                         .type = output_.has_classes ? kInt32 : kFloat32,
                         .attributes = variable.attributes,
                         .has_gaps = !output_.has_classes};
    if (!steps_.empty()) field.dimensions.push_back(steps_);
    if (variable.has_channel_axis) {
      const std::string axis = names_.add(field.name + "_channel");
      contents_.dimensions.push_back({.name = axis, .size = variable.channels});
      field.dimensions.push_back(axis);
    }
    field.dimensions.insert(field.dimensions.end(), space_.begin(), space_.end());
    if (!coordinates_.empty()) field.attributes["coordinates"] = text_value(joined(coordinates_, " "));
    fields_.push_back(field);
    contents_.variables.push_back(std::move(field));
  }
}

void FieldsFile::Impl::lay_out() {
  contents_.attributes = {{"Conventions", text_value("CF-1.8")}, {"source", text_value(options_.source)}};
  const bool is_series =
      output_.has_times() && output_.steps == 1 && are_times_increasing(*dataset_, times_, options_.count);
  samples_ = names_.add(is_series ? "time" : "sample");
  contents_.dimensions.push_back({.name = samples_, .size = options_.count});
  if (output_.steps > 1) {
    steps_ = names_.add("step");
    contents_.dimensions.push_back({.name = steps_, .size = output_.steps});
    NetcdfVariable steps{.name = steps_,
                         .dimensions = {steps_},
                         .type = kInt32,
                         .attributes = {{"long_name", text_value("predicted step")}}};
    for (std::int64_t step = 1; step <= output_.steps; ++step) steps.values.push_back(static_cast<double>(step));
    contents_.variables.push_back(std::move(steps));
  }
  for (const data::OutputAxis& axis : output_.space) {
    space_.push_back(names_.add(axis.name));
    contents_.dimensions.push_back({.name = space_.back(), .size = axis.size});
    if (axis.coordinates.empty()) continue;
    contents_.variables.push_back({.name = space_.back(),
                                   .dimensions = {space_.back()},
                                   .type = axis.is_double ? kFloat64 : kFloat32,
                                   .attributes = axis.attributes,
                                   .values = axis.coordinates});
  }
  add_times();
  add_places();
  add_fields();
}

/// The predictions as [N, T * C, points], with NaN in gaps; class numbers as [N, 1, points] int32.
at::Tensor FieldsFile::Impl::rows_of(const engine::BatchPredictions& predictions, const batch::Batch& given) const {
  at::Tensor rows = output_.has_classes ? predictions.masks : predictions.values;
  const std::int64_t channels = output_.channels();
  std::vector<std::int64_t> shape = {predictions.size()};
  if (!output_.has_classes) shape.push_back(output_.steps * channels);
  for (const data::OutputAxis& axis : output_.space) shape.push_back(axis.size);
  if (!rows.defined() || rows.sizes() != at::IntArrayRef(shape)) {
    throw DataError("the model predicts " + (rows.defined() ? shape_text(rows.sizes().vec()) : "no fields") +
                    " for a batch, but the fields of the targets are " + shape_text(shape) +
                    "; write a file that ends in .npy or .jsonl");
  }
  const std::vector<std::int64_t> flat = {predictions.size(), output_.has_classes ? 1 : output_.steps * channels, -1};
  if (output_.has_classes) return rows.to(at::kInt).reshape(flat);
  rows = rows.to(at::kFloat);
  if (given.has("mask") && given.at("mask").is<at::Tensor>()) {
    const at::Tensor& mask = given.at("mask").as<at::Tensor>();
    if (mask.sizes() == rows.sizes()) {
      rows = rows.masked_fill(mask.cpu().logical_not(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  return rows.reshape(flat);
}

void FieldsFile::Impl::write(const engine::BatchPredictions& predictions, const batch::Batch& given) {
  if (predictions.size() == 0) return;
  const std::int64_t first = predictions.indices.front();
  const at::Tensor rows = rows_of(predictions, given);
  const std::int64_t points = rows.size(2);
  // [N, T, C, points]
  const at::Tensor steps = rows.reshape({predictions.size(), output_.steps, -1, points});
  std::int64_t channel = 0;
  for (std::size_t v = 0; v < fields_.size(); ++v) {
    const std::int64_t channels = output_.variables[v].channels;
    const at::Tensor part = steps.slice(2, channel, channel + channels).contiguous();
    channel += channels;
    file_->write(fields_[v], first * output_.steps * channels * points,
                 {static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes()});
  }
  for (const SampleNumbers& each : numbers_) {
    std::vector<double> numbers;
    for (const std::int64_t index : predictions.indices) {
      const std::vector<double> more = each.numbers_of(dataset_->place(index));
      numbers.insert(numbers.end(), more.begin(), more.end());
    }
    const std::string bytes =
        each.variable.type == kInt32 ? bytes_as<std::int32_t>(numbers) : bytes_as<double>(numbers);
    file_->write(each.variable, first * (std::ssize(numbers) / predictions.size()), bytes_of_text(bytes));
  }
}

FieldsFile::FieldsFile(const mpi::Communicator& world, const data::Dataset& dataset, const Task& task,
                       FieldsFileOptions options)
    : is_root_(world.is_root()) {
  world.all_or_throw([&] {
    const data::FieldDataset* const fields = data::fields_of(dataset);
    if (fields == nullptr) {
      throw ConfigError(options.cite + ": '" + options.path +
                        "' is for fields, but the data are not those of data.name=fields; use a file that ends in "
                        ".jsonl, .csv or .npy");
    }
    impl_ = std::make_unique<Impl>(*fields, task, std::move(options));
    if (is_root_) impl_->open(true);
  });
  world.all_or_throw([&] {
    if (!is_root_) impl_->open(false);
  });
}

FieldsFile::~FieldsFile() = default;

void FieldsFile::write(const engine::BatchPredictions& predictions, const batch::Batch& given) {
  impl_->write(predictions, given);
}

void FieldsFile::close() {
  if (!is_root_) impl_->file().close();  // the root closes it in `finish`
}

void FieldsFile::finish() { impl_->file().finish(); }

void FieldsFile::publish() { impl_->file().publish(); }

}  // namespace lockstep::trainer
