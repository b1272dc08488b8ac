// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/batch/batch.hpp>
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>

#include "batch/collate.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::batch {

namespace {

/// The names of a map or of outputs, for messages.
template <class Named>
std::string names_in(const Named& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back("'" + name + "'");
  return names.empty() ? "nothing" : joined(names);
}

const std::string& key_of(const std::vector<std::string>& keys, std::size_t i, const char* role) {
  if (i < keys.size()) return keys[i];
  throw DataError("the batch does not contain " + std::string(role) + " " + std::to_string(i) + ": data." + role +
                  "_keys lists only " + std::to_string(keys.size()));
}

}  // namespace

DataContainer::DataContainer(Value data, ContainerOptions options)
    : data_(std::make_shared<const Value>(std::move(data))), options_(options) {
  if (options.pad_dims && (*options.pad_dims < 1 || *options.pad_dims > 3)) {
    throw ConfigError("a container's pad_dims must be none, 1, 2 or 3, not " + std::to_string(*options.pad_dims));
  }
}

std::vector<std::int64_t> DataContainer::size() const {
  if (!data_->is<at::Tensor>()) throw DataError("a container of " + kind_of(*data_) + " has no size");
  return data_->as<at::Tensor>().sizes().vec();
}

std::int64_t DataContainer::dim() const { return static_cast<std::int64_t>(size().size()); }

std::int64_t DataContainer::length() const {
  if (data_->is<ValueList>()) return static_cast<std::int64_t>(data_->as<ValueList>().size());
  if (data_->is<ValueMap>()) return static_cast<std::int64_t>(data_->as<ValueMap>().size());
  if (data_->is<std::string>()) return static_cast<std::int64_t>(data_->as<std::string>().size());
  if (data_->is<at::Tensor>() && dim() > 0) return size().front();
  throw DataError("a container of " + kind_of(*data_) + " has no length");
}

std::string kind_of(const Value& value) {
  static constexpr std::array<const char*, std::variant_size_v<Value::Kinds>> names = {
      "nothing", "a tensor", "an integer", "a number", "a text", "a list", "a map", "a container"};
  return names.at(value.kind.index());
}

std::string shape_text(const at::Tensor& tensor) {
  TextWriter text;
  text << tensor.sizes();
  return text.str();
}

std::vector<Draw> draws_in_order(std::int64_t begin, std::int64_t count) {
  std::vector<Draw> draws(static_cast<std::size_t>(count));
  for (Draw& draw : draws) {
    draw.index = draw.position = begin++;
  }
  return draws;
}

Batch::Batch(at::Tensor data, at::Tensor label) {
  size_ = data.dim() == 0 ? 1 : data.size(0);
  values_.emplace("data", std::move(data));
  if (label.defined()) values_.emplace("label", std::move(label));
}

const Value& Batch::at(const std::string& key) const {
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  throw DataError("samples do not contain '" + key + "', only " + names_in(values_));
}

const at::Tensor& Batch::tensor(const std::string& key) const {
  const Value& value = at(key);
  if (value.is<at::Tensor>()) return value.as<at::Tensor>();
  throw DataError("'" + key + "' of the batch is " + kind_of(value) + ", not a tensor");
}

std::vector<at::Tensor> Batch::tensors(const std::string& key) const {
  const Value& value = at(key);
  if (value.is<at::Tensor>()) return {value.as<at::Tensor>()};
  if (!value.is<ValueList>()) throw DataError("'" + key + "' of the batch is " + kind_of(value) + ", not tensors");
  std::vector<at::Tensor> tensors;
  for (const Value& each : value.as<ValueList>()) {
    if (!each.is<at::Tensor>()) throw DataError("the list '" + key + "' of the batch contains " + kind_of(each));
    tensors.push_back(each.as<at::Tensor>());
  }
  return tensors;
}

const Roles& Batch::roles() const noexcept {
  static const Roles usual;
  return roles_ ? *roles_ : usual;
}

const std::string& Batch::input_key(std::size_t i) const { return key_of(roles().inputs, i, "input"); }

const std::string& Batch::target_key(std::size_t i) const { return key_of(roles().targets, i, "target"); }

void Batch::change(const std::string& key, const std::function<void(at::Tensor&)>& change) {
  change_leaves(values_.at(key), [&change](Value& value) {
    if (value.is<at::Tensor>()) change(std::get<at::Tensor>(value.kind));
  });
}

void Batch::change_each(const std::function<void(const std::string& key, Value& value)>& change) {
  for (auto& [key, value] : values_) change(key, value);
}

void Batch::drop_first(std::int64_t count) {
  const std::int64_t left = size_ - count;
  for (auto& [key, value] : values_) {
    if (auto* const tensor = std::get_if<at::Tensor>(&value.kind)) {
      if (tensor->dim() > 0 && tensor->size(0) == size_) *tensor = tensor->narrow(0, count, left);
    } else if (auto* const list = std::get_if<ValueList>(&value.kind)) {
      if (std::ssize(*list) == size_) list->erase(list->begin(), list->begin() + count);
    }
  }
  if (std::ssize(draws_) == size_) draws_.erase(draws_.begin(), draws_.begin() + count);
  size_ = left;
}

const at::Tensor& Outputs::main() const {
  if (entries_.empty()) throw ConfigError("the model returned no outputs");
  return entries_.front().second;
}

at::Tensor Outputs::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  return found == entries_.end() ? at::Tensor() : found->second;
}

const at::Tensor& Outputs::tensor(const std::string& name) const {
  for (const auto& [each, tensor] : entries_) {
    if (each == name) return tensor;
  }
  throw ConfigError("the model does not return the output '" + name + "', only " + names_in(entries_));
}

std::vector<at::Tensor> Outputs::list(const std::string& name) const {
  std::vector<at::Tensor> tensors;
  for (const auto& [each, tensor] : entries_) {
    if (each == name) tensors.push_back(tensor);
  }
  return tensors;
}

Outputs Outputs::detached() const {
  Outputs result;
  for (const auto& [name, tensor] : entries_) result.add(name, tensor.defined() ? tensor.detach() : tensor);
  return result;
}

}  // namespace lockstep::batch
