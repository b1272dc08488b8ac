// SPDX-License-Identifier: BSD-3-Clause
#include "data/collate.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <sstream>

namespace lockstep::data {

namespace {

/// The values of all samples at one place of their structure.
using Column = std::vector<const Value*>;
/// Joins what is neither map nor list.
using Leaf = std::function<Value(const Column&, const std::string& place)>;

[[noreturn]] void refuse(const std::string& place, const std::string& fault) {
  throw DataError("samples cannot be joined" + (place.empty() ? "" : " at " + place) + ": " + fault);
}

Value join(const Column& column, const Leaf& leaf, const std::string& place);

Value join_maps(const Column& column, const Leaf& leaf, const std::string& place) {
  ValueMap joined;
  for (const auto& [key, first] : column.front()->as<ValueMap>()) {
    Column below;
    for (std::size_t i = 0; i < column.size(); ++i) {
      const ValueMap& map = column[i]->as<ValueMap>();
      const auto found = map.find(key);
      if (found == map.end()) refuse(place, "sample " + std::to_string(i) + " has no '" + key + "'");
      below.push_back(&found->second);
    }
    joined[key] = join(below, leaf, place + (place.empty() ? "" : ".") + key);
  }
  for (std::size_t i = 0; i < column.size(); ++i) {
    for (const auto& [key, value] : column[i]->as<ValueMap>()) {
      if (!joined.contains(key))
        refuse(place, "sample 0 has no '" + key + "', but sample " + std::to_string(i) + " has");
    }
  }
  return joined;
}

Value join_lists(const Column& column, const Leaf& leaf, const std::string& place) {
  const std::size_t length = column.front()->as<ValueList>().size();
  for (std::size_t i = 0; i < column.size(); ++i) {
    const std::size_t other = column[i]->as<ValueList>().size();
    if (other != length) {
      refuse(place, "the list of sample 0 has " + std::to_string(length) + " elements, that of sample " +
                        std::to_string(i) + " has " + std::to_string(other));
    }
  }
  ValueList joined;
  for (std::size_t element = 0; element < length; ++element) {
    Column below;
    for (const Value* value : column) below.push_back(&value->as<ValueList>()[element]);
    joined.push_back(join(below, leaf, place + "[" + std::to_string(element) + "]"));
  }
  return joined;
}

Value join(const Column& column, const Leaf& leaf, const std::string& place) {
  const Value& first = *column.front();
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (column[i]->kind.index() == first.kind.index()) continue;
    refuse(place,
           "sample 0 has " + kind_of(first) + ", but sample " + std::to_string(i) + " has " + kind_of(*column[i]));
  }
  if (first.is<ValueMap>()) return join_maps(column, leaf, place);
  if (first.is<ValueList>()) return join_lists(column, leaf, place);
  return leaf(column, place);
}

Value join_samples(std::span<const Value> samples, const Leaf& leaf) {
  if (samples.empty()) refuse("", "there are none");
  Column column;
  for (const Value& sample : samples) column.push_back(&sample);
  return join(column, leaf, "");
}

Value list_of(const Column& column, const std::string& /*place*/) {
  ValueList list;
  for (const Value* value : column) list.push_back(*value);
  return list;
}

template <class T>
Value tensor_of_numbers(const Column& column) {
  std::vector<T> numbers;
  for (const Value* value : column) numbers.push_back(value->as<T>());
  return at::tensor(at::ArrayRef<T>(numbers));
}

at::Tensor stacked(const std::vector<at::Tensor>& tensors, const std::string& place) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.sizes() != tensors.front().sizes()) {
      refuse(place, "shapes " + shape_text(tensors.front()) + " and " + shape_text(tensor) + " differ");
    }
    if (tensor.scalar_type() != tensors.front().scalar_type()) refuse(place, "the tensors have different types");
  }
  return at::stack(tensors);
}

Value join_plain(const Column& column, const std::string& place) {
  const Value& first = *column.front();
  if (first.is<at::Tensor>()) {
    std::vector<at::Tensor> tensors;
    for (const Value* value : column) tensors.push_back(value->as<at::Tensor>());
    return stacked(tensors, place);
  }
  if (first.is<std::int64_t>()) return tensor_of_numbers<std::int64_t>(column);
  if (first.is<double>()) return tensor_of_numbers<double>(column);
  if (first.is<std::string>()) return list_of(column, place);
  refuse(place, kind_of(first) + " has no rule" + (first.is<DataContainer>() ? " here; use collate" : ""));
}

/// The tensors of a group, their last dimensions padded to the largest.
at::Tensor padded_group(std::span<const Value* const> group, const std::string& place) {
  const int pad_dims = group.front()->as<DataContainer>().options().pad_dims.value_or(0);
  std::vector<at::Tensor> tensors;
  for (const Value* value : group) {
    const Value& data = value->as<DataContainer>().data();
    if (!data.is<at::Tensor>()) refuse(place, "a container with stack holds " + kind_of(data) + ", not a tensor");
    tensors.push_back(data.as<at::Tensor>());
  }
  if (pad_dims == 0) return stacked(tensors, place);
  const std::int64_t dim = tensors.front().dim();
  if (dim <= pad_dims) {
    refuse(place, "shape " + shape_text(tensors.front()) + " has no dimension before the " + std::to_string(pad_dims) +
                      " that are padded");
  }
  std::vector<std::int64_t> largest = tensors.front().sizes().vec();
  for (const at::Tensor& tensor : tensors) {
    const auto leading = static_cast<std::size_t>(dim - pad_dims);
    if (tensor.dim() != dim || tensor.sizes().slice(0, leading) != tensors.front().sizes().slice(0, leading)) {
      refuse(place, "shapes " + shape_text(tensors.front()) + " and " + shape_text(tensor) +
                        " differ before the last " + std::to_string(pad_dims) + " dimensions");
    }
    for (std::size_t i = 0; i < largest.size(); ++i)
      largest[i] = std::max(largest[i], tensor.size(static_cast<std::int64_t>(i)));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::int64_t> pads;  // from the last dimension on: before, after
    for (std::int64_t d = dim - 1; d >= dim - pad_dims; --d) {
      pads.insert(pads.end(), {0, largest[static_cast<std::size_t>(d)] - tensors[i].size(d)});
    }
    tensors[i] = at::constant_pad_nd(tensors[i], pads, group[i]->as<DataContainer>().options().padding_value);
  }
  return stacked(tensors, place);
}

Value join_containers(const Column& column, std::int64_t samples_per_group, const std::string& place) {
  const ContainerOptions& options = column.front()->as<DataContainer>().options();
  for (const Value* value : column) {
    const ContainerOptions& other = value->as<DataContainer>().options();
    if (other.stack != options.stack || other.cpu_only != options.cpu_only || other.pad_dims != options.pad_dims) {
      refuse(place, "the containers differ in stack, cpu_only or pad_dims");
    }
  }
  ValueList groups;
  const auto step = static_cast<std::size_t>(samples_per_group);
  for (std::size_t begin = 0; begin < column.size(); begin += step) {
    const std::span<const Value* const> group = std::span(column).subspan(begin, std::min(step, column.size() - begin));
    if (options.stack && !options.cpu_only) {
      groups.emplace_back(padded_group(group, place));
      continue;
    }
    ValueList list;
    for (const Value* value : group) list.push_back(value->as<DataContainer>().data());
    groups.emplace_back(std::move(list));
  }
  return DataContainer(std::move(groups), options);
}

/// Every value that is neither map nor list, replaced.
Value mapped(const Value& value, const std::function<Value(const Value&)>& change) {
  if (value.is<ValueMap>()) {
    ValueMap map;
    for (const auto& [key, below] : value.as<ValueMap>()) map[key] = mapped(below, change);
    return map;
  }
  if (value.is<ValueList>()) {
    ValueList list;
    for (const Value& below : value.as<ValueList>()) list.push_back(mapped(below, change));
    return list;
  }
  return change(value);
}

}  // namespace

Value collate(std::span<const Value> samples, std::int64_t samples_per_group) {
  if (samples_per_group < 1) throw DataError("collate: samples_per_group must be at least 1");
  return join_samples(samples, [samples_per_group](const Column& column, const std::string& place) {
    return column.front()->is<DataContainer>() ? join_containers(column, samples_per_group, place)
                                               : join_plain(column, place);
  });
}

Value default_collate(std::span<const Value> samples) { return join_samples(samples, join_plain); }

Value pseudo_collate(std::span<const Value> samples) { return join_samples(samples, list_of); }

Value cast_data(const Value& batch, const at::Device& device, bool non_blocking) {
  return mapped(batch, [&](const Value& value) -> Value {
    return value.is<at::Tensor>() ? Value(value.as<at::Tensor>().to(device, non_blocking)) : value;
  });
}

Value scatter(const Value& batch, const at::Device& device, bool non_blocking) {
  return mapped(batch, [&](const Value& value) -> Value {
    if (!value.is<DataContainer>()) return cast_data(value, device, non_blocking);
    const auto& container = value.as<DataContainer>();
    Value held = container.data();
    if (held.is<ValueList>()) {
      const ValueList& groups = held.as<ValueList>();
      if (groups.size() != 1) {
        throw DataError("a container has " + std::to_string(groups.size()) +
                        " groups for one device; collate with samples_per_group = the number of samples");
      }
      held = Value(groups.front());
    }
    return container.options().cpu_only ? held : scatter(held, device, non_blocking);
  });
}

}  // namespace lockstep::data
