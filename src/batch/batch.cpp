// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/batch/batch.hpp>
#include <lockstep/core/error.hpp>

#include "core/text/text.hpp"

namespace lockstep::batch {

namespace {

std::string names_in(const ValueMap& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back("'" + name + "'");
  return names.empty() ? "nothing" : joined(names);
}

const std::string& key_of(const std::vector<std::string>& keys, std::size_t i, const char* role) {
  if (i < keys.size()) return keys[i];
  throw DataError("the batch does not contain " + std::string(role) + " " + std::to_string(i) + ": data." + role +
                  "_keys lists only " + std::to_string(keys.size()));
}

void change_tensors(Value& value, const std::function<void(at::Tensor&)>& change) {
  if (value.is<at::Tensor>()) {
    change(std::get<at::Tensor>(value.kind));
  } else if (value.is<ValueList>()) {
    for (Value& each : std::get<ValueList>(value.kind)) change_tensors(each, change);
  } else if (value.is<ValueMap>()) {
    for (auto& [name, each] : std::get<ValueMap>(value.kind)) change_tensors(each, change);
  }
}

}  // namespace

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
  change_tensors(values_.at(key), change);
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

Batch Batch::share() const {
  Batch shared;
  shared.values_ = values_;
  shared.size_ = size_;
  shared.roles_ = roles_;
  shared.byte_tables_ = byte_tables_;
  shared.draws_ = draws_;
  return shared;
}

}  // namespace lockstep::batch
