// SPDX-License-Identifier: BSD-3-Clause
#include "embed/samples.hpp"

#include <lockstep/core/error.hpp>

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <ranges>

#include "core/text/text.hpp"
#include "engine/evaluation/target_check.hpp"

namespace lockstep::embed {

namespace {

using Shape = std::vector<std::int64_t>;

// The values that losses read.
const std::string kMask = "mask";
const std::string kWeight = "weight";

Shape shape_without_samples(const at::Tensor& tensor) { return tensor.sizes().slice(1).vec(); }

Shape target_shape_of(const Section& data, const Task& task) {
  switch (task.kind) {
    case TaskKind::multilabel:
      return {task.classes};
    case TaskKind::regression:
      return data.integers("target_shape");
    case TaskKind::segmentation:
      return {task.sample_shape.begin() + 1, task.sample_shape.end()};
    default:
      return {};
  }
}

void require_shape(const std::string& name, const at::Tensor& tensor, const Shape& wanted, const char* key) {
  const Shape given = shape_without_samples(tensor);
  if (given == wanted) return;
  throw DataError("a sample of '" + name + "' has the shape " + shape_text(given) + ", but " + key + " says " +
                  shape_text(wanted));
}

const at::Tensor* find(const SampleTensors& samples, const std::string& name) {
  const auto found = std::ranges::find(samples, name, &SampleTensors::value_type::first);
  return found == samples.end() ? nullptr : &found->second;
}

std::string names_of(const SampleTensors& samples) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : samples) names.push_back("'" + name + "'");
  return names.empty() ? "there is none" : "there are " + joined(names);
}

const at::Tensor& required(const SampleTensors& samples, const std::string& name, const char* role) {
  if (const at::Tensor* const found = find(samples, name)) return *found;
  throw DataError("the " + std::string(role) + " '" + name + "' is missing; " + names_of(samples));
}

/// The number of samples.
std::int64_t count_of(const SampleTensors& samples) {
  std::int64_t count = -1;
  const std::string* first = nullptr;
  for (const auto& [name, tensor] : samples) {
    if (!tensor.defined() || tensor.dim() == 0) {
      throw DataError("'" + name + "' has no dimension of samples; the first one counts them");
    }
    if (std::ranges::count(samples, name, &SampleTensors::value_type::first) > 1) {
      throw DataError("there are two arrays of the name '" + name + "'");
    }
    if (first == nullptr) {
      first = &name;
      count = tensor.size(0);
    } else if (tensor.size(0) != count) {
      throw DataError("'" + *first + "' has " + std::to_string(count) + " samples, but '" + name + "' has " +
                      std::to_string(tensor.size(0)));
    }
  }
  return std::max<std::int64_t>(count, 0);
}

/// Numbers of other types than the floating-point ones become float32.
at::Tensor as_numbers(const at::Tensor& tensor) { return tensor.is_floating_point() ? tensor : tensor.to(at::kFloat); }

/// The batch with its target in the memory of the host, where classes are checked. A kernel of a GPU that gets a wrong
/// class as an index ends the use of this GPU.
batch::Batch with_target_on_host(const batch::Batch& batch) {
  batch::Batch checked = batch.share();
  if (batch.has_target() && !batch.target().is_cpu()) checked.set(batch.target_key(), batch.target().cpu());
  return checked;
}

}  // namespace

SampleTensors on_host(SampleTensors samples) {
  for (auto& [name, tensor] : samples) {
    if (tensor.defined()) tensor = tensor.cpu();
  }
  return samples;
}

const at::Tensor& output_of(const SampleTensors& outputs, const std::string& name) {
  if (const at::Tensor* const found = find(outputs, name)) return *found;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : outputs) names.push_back("'" + known + "'");
  throw DataError("the model has no output '" + name + "'; it has " + joined(names));
}

void write(const std::string& name, const at::Tensor& target, const at::Tensor& values) {
  if (!target.defined() || target.sizes() != values.sizes()) {
    throw DataError("'" + name + "' has the sizes " + (target.defined() ? batch::shape_text(target) : "of nothing") +
                    ", but the values " + batch::shape_text(values));
  }
  const c10::InferenceMode inference;
  target.copy_(values);
}

SampleForm::SampleForm(const Section& data, const Task& task, batch::Roles roles, const models::Model& model)
    : task_(task),
      target_shape_(target_shape_of(data, task)),
      join_keys_(words_in(data.text("join_keys"))),
      mask_key_(data.text("mask_key")),
      weight_key_(data.text("weight_key")),
      roles_(std::make_shared<const batch::Roles>(std::move(roles))),
      check_(engine::target_check(model, task)) {}

/// The samples with the input that data.join_keys asks for, in place of its parts.
SampleTensors SampleForm::joined_inputs(const SampleTensors& samples) const {
  std::vector<at::Tensor> parts;
  for (const std::string& name : join_keys_) {
    parts.push_back(as_numbers(required(samples, name, "input")));
    const Shape shape = shape_without_samples(parts.back());
    const Shape first = shape_without_samples(parts.front());
    if (!shape.empty() && std::ranges::equal(shape | std::views::drop(1), first | std::views::drop(1))) continue;
    throw DataError("'" + name + "' has samples of the shape " + shape_text(shape) + ", which cannot be joined to " +
                    shape_text(first) + " of '" + join_keys_.front() + "'; all but the first size must be equal");
  }
  SampleTensors joined = {{roles_->inputs.front(), at::cat(parts, 1)}};
  for (const auto& each : samples) {
    if (std::ranges::find(join_keys_, each.first) == join_keys_.end()) joined.push_back(each);
  }
  return joined;
}

batch::Batch SampleForm::batch_of(const SampleTensors& given, bool has_targets) const {
  const std::int64_t count = count_of(given);
  const SampleTensors samples = join_keys_.empty() || given.empty() ? given : joined_inputs(given);
  if (mask_key_ != kMask && find(samples, kMask) != nullptr && find(samples, mask_key_) != nullptr) {
    throw DataError("there are two arrays of the name 'mask', which is that of '" + mask_key_ + "' for losses");
  }
  batch::ValueMap values;
  for (const auto& [name, tensor] : samples) values[name == mask_key_ ? kMask : name] = tensor;
  if (count == 0 && samples.empty()) {
    batch::Batch none(std::move(values), 0);
    none.set_roles(roles_);
    return none;
  }
  for (std::size_t i = 0; i < roles_->inputs.size(); ++i) {
    const std::string& name = roles_->inputs[i];
    const at::Tensor& input = required(samples, name, "input");
    if (i == 0) require_shape(name, input, task_.sample_shape, "data.input_shape");
    values[name] = task_.is_text ? input.to(at::kLong) : as_numbers(input);
  }
  if (has_targets) {
    if (!weight_key_.empty()) values[kWeight] = weights_in(samples);
    for (std::size_t i = 0; i < roles_->targets.size(); ++i) {
      const std::string& name = roles_->targets[i];
      const at::Tensor& target = required(samples, name, "target");
      values[name] = i == 0 ? checked_target(name, target) : target;
    }
  }
  batch::Batch batch(std::move(values), count);
  batch.set_roles(roles_);
  if (!has_targets || !check_) return batch;
  if (const std::optional<data::SampleFault> fault = check_(with_target_on_host(batch))) {
    throw DataError("sample " + std::to_string(fault->row) + ": " + fault->text);
  }
  return batch;
}

/// One number per sample, [N].
at::Tensor SampleForm::weights_in(const SampleTensors& samples) const {
  const at::Tensor& weights = required(samples, weight_key_, "weight");
  if (weights.numel() != weights.size(0)) {
    throw DataError("'" + weight_key_ + "' has the shape " + batch::shape_text(weights) +
                    ", but data.weight_key names one number per sample");
  }
  return weights.flatten().to(at::kFloat);
}

at::Tensor SampleForm::checked_target(const std::string& name, const at::Tensor& target) const {
  const bool has_classes = task_.kind == TaskKind::classification || task_.kind == TaskKind::segmentation;
  if (task_.kind == TaskKind::custom) return target;
  require_shape(name, target, target_shape_,
                task_.kind == TaskKind::regression ? "data.target_shape" : "data.kind, with data.classes,");
  if (!has_classes) return as_numbers(target);
  if (!target.is_floating_point()) return target.to(at::kLong);
  throw DataError("'" + name + "' has the type " + std::string(c10::toString(target.scalar_type())) +
                  ", but targets of a " + (task_.kind == TaskKind::classification ? "classification" : "segmentation") +
                  " are integers: the numbers of classes");
}

batch::Batch SampleForm::rows_of(const batch::Batch& batch, std::int64_t begin, std::int64_t count) const {
  if (begin == 0 && count == batch.size()) return batch.share();
  batch::ValueMap values;
  for (const auto& [name, value] : batch.values()) values[name] = value.as<at::Tensor>().narrow(0, begin, count);
  batch::Batch part(std::move(values), count);
  part.set_roles(roles_);
  return part;
}

batch::Batch SampleForm::selected(const batch::Batch& batch, const std::vector<std::int64_t>& rows) const {
  if (std::ssize(rows) == batch.size()) return batch.share();
  const at::Tensor chosen = at::tensor(rows, at::TensorOptions(at::kLong));
  batch::ValueMap values;
  for (const auto& [name, value] : batch.values()) values[name] = value.as<at::Tensor>().index_select(0, chosen);
  batch::Batch part(std::move(values), std::ssize(rows));
  part.set_roles(roles_);
  return part;
}

batch::Batch SampleForm::drawn(batch::ValueMap values) const {
  const std::int64_t count = values.empty() ? 0 : values.begin()->second.as<at::Tensor>().size(0);
  batch::Batch batch(std::move(values), count);
  batch.set_roles(roles_);
  return batch;
}

batch::Batch SampleForm::filler(const batch::Batch& like) const {
  batch::ValueMap values;
  const auto row = [](const Shape& shape, c10::ScalarType type, double value) {
    Shape one = {1};
    one.insert(one.end(), shape.begin(), shape.end());
    return at::full(one, value, at::TensorOptions(type));
  };
  for (const auto& [name, value] : like.values()) {
    const at::Tensor& tensor = value.as<at::Tensor>();
    values[name] = row(shape_without_samples(tensor), tensor.scalar_type(), name == kMask || name == kWeight ? 1 : 0);
  }
  const std::string& input = roles_->inputs.front();
  if (!values.contains(input)) {
    values[input] = row(task_.sample_shape, task_.is_text ? at::kLong : at::kFloat, 0);
  }
  const bool has_classes = task_.kind == TaskKind::classification || task_.kind == TaskKind::segmentation;
  if (task_.kind != TaskKind::custom && !roles_->targets.empty()) {
    values[roles_->targets.front()] =
        row(target_shape_, has_classes ? at::kLong : at::kFloat, has_classes ? static_cast<double>(data::kIgnored) : 0);
  }
  if (!weight_key_.empty()) values[kWeight] = at::ones({1});
  batch::Batch filled(std::move(values), 1);
  filled.set_roles(roles_);
  return filled;
}

}  // namespace lockstep::embed
