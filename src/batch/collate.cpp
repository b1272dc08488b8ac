// SPDX-License-Identifier: BSD-3-Clause
#include "batch/collate.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <functional>

namespace lockstep::batch {

namespace {

/// The values of all samples at one place of their structure.
using Column = std::vector<const Value*>;

[[noreturn]] void refuse(const std::string& place, const std::string& fault) {
  throw DataError("samples cannot be collated" + (place.empty() ? "" : " at '" + place + "'") + ": " + fault);
}

std::string below(const std::string& place, const std::string& key) { return place + (place.empty() ? "" : ".") + key; }

/// Joins the samples' values, place by place.
class Joiner {
 public:
  Joiner(std::int64_t samples_per_group, std::span<const Draw> draws)
      : samples_per_group_(samples_per_group), draws_(draws) {}

  Value join(const Column& column, const std::string& place) const {
    const Value& first = *column.front();
    for (std::size_t i = 0; i < column.size(); ++i) {
      if (column[i]->kind.index() == first.kind.index()) continue;
      refuse(place, sample(0) + " has " + kind_of(first) + ", but " + sample(i) + " has " + kind_of(*column[i]));
    }
    if (first.is<ValueMap>()) return join_maps(column, place);
    if (first.is<ValueList>()) return join_lists(column, place);
    return first.is<DataContainer>() ? join_containers(column, place) : join_plain(column, place);
  }

  /// How messages call the sample.
  std::string sample(std::size_t i) const {
    return "sample " + std::to_string(i < draws_.size() ? draws_[i].index : static_cast<std::int64_t>(i));
  }

 private:
  Value join_maps(const Column& column, const std::string& place) const {
    ValueMap joined;
    for (const auto& [key, first] : column.front()->as<ValueMap>()) {
      Column values;
      for (std::size_t i = 0; i < column.size(); ++i) {
        const ValueMap& map = column[i]->as<ValueMap>();
        const auto found = map.find(key);
        if (found == map.end()) refuse_missing(place, key, i, 0);
        values.push_back(&found->second);
      }
      joined[key] = join(values, below(place, key));
    }
    for (std::size_t i = 0; i < column.size(); ++i) {
      for (const auto& [key, value] : column[i]->as<ValueMap>()) {
        if (!joined.contains(key)) refuse_missing(place, key, 0, i);
      }
    }
    return joined;
  }

  [[noreturn]] void refuse_missing(const std::string& place, const std::string& key, std::size_t without,
                                   std::size_t with) const {
    refuse(place, sample(without) + " has no '" + key + "', but " + sample(with) + " has");
  }

  Value join_lists(const Column& column, const std::string& place) const {
    const std::size_t length = column.front()->as<ValueList>().size();
    for (std::size_t i = 0; i < column.size(); ++i) {
      const std::size_t other = column[i]->as<ValueList>().size();
      if (other != length) {
        refuse(place, "the list of " + sample(0) + " has " + std::to_string(length) + " elements, that of " +
                          sample(i) + " has " + std::to_string(other));
      }
    }
    ValueList joined;
    for (std::size_t element = 0; element < length; ++element) {
      Column values;
      for (const Value* value : column) values.push_back(&value->as<ValueList>()[element]);
      joined.push_back(join(values, place + "[" + std::to_string(element) + "]"));
    }
    return joined;
  }

  Value join_plain(const Column& column, const std::string& place) const {
    const Value& first = *column.front();
    if (first.is<at::Tensor>()) {
      std::vector<at::Tensor> tensors;
      for (const Value* value : column) tensors.push_back(value->as<at::Tensor>());
      return stacked(tensors, place);
    }
    if (first.is<std::int64_t>()) return tensor_of_numbers<std::int64_t>(column);
    if (first.is<double>()) return tensor_of_numbers<double>(column);
    if (first.is<std::string>()) return list_of(column);
    refuse(place, kind_of(first) + " has no rule");
  }

  at::Tensor stacked(const std::vector<at::Tensor>& tensors, const std::string& place) const {
    const at::Tensor& first = tensors.front();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      if (tensor.sizes() != first.sizes()) {
        refuse(place, "shapes " + shape_text(first) + " of " + sample(0) + " and " + shape_text(tensor) + " of " +
                          sample(i) + " differ");
      }
      if (tensor.scalar_type() != first.scalar_type()) {
        refuse(place, "the tensors of " + sample(0) + " and " + sample(i) + " have different types");
      }
    }
    return at::stack(tensors);
  }

  Value join_containers(const Column& column, const std::string& place) const {
    const ContainerOptions& options = column.front()->as<DataContainer>().options();
    for (const Value* value : column) {
      const ContainerOptions& other = value->as<DataContainer>().options();
      if (other.stack != options.stack || other.cpu_only != options.cpu_only || other.pad_dims != options.pad_dims) {
        refuse(place, "the containers differ in stack, cpu_only or pad_dims");
      }
    }
    ValueList groups;
    const auto step = static_cast<std::size_t>(samples_per_group_);
    for (std::size_t begin = 0; begin < column.size(); begin += step) {
      const std::span<const Value* const> group =
          std::span(column).subspan(begin, std::min(step, column.size() - begin));
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

  /// The tensors of a group, their last dimensions padded to the largest.
  at::Tensor padded_group(std::span<const Value* const> group, const std::string& place) const {
    const int pad_dims = group.front()->as<DataContainer>().options().pad_dims.value_or(0);
    std::vector<at::Tensor> tensors;
    for (const Value* value : group) {
      const Value& data = value->as<DataContainer>().data();
      if (!data.is<at::Tensor>()) refuse(place, "a container with stack must hold a tensor, not " + kind_of(data));
      tensors.push_back(data.as<at::Tensor>());
    }
    if (pad_dims == 0) return stacked(tensors, place);
    const std::vector<std::int64_t> largest = largest_of(tensors, pad_dims, place);
    const std::int64_t dim = tensors.front().dim();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::vector<std::int64_t> pads;  // padding before and after, beginning with the last dimension
      for (std::int64_t d = dim - 1; d >= dim - pad_dims; --d) {
        pads.insert(pads.end(), {0, largest[static_cast<std::size_t>(d)] - tensors[i].size(d)});
      }
      tensors[i] = at::constant_pad_nd(tensors[i], pads, group[i]->as<DataContainer>().options().padding_value);
    }
    return stacked(tensors, place);
  }

  static std::vector<std::int64_t> largest_of(const std::vector<at::Tensor>& tensors, int pad_dims,
                                              const std::string& place) {
    const std::int64_t dim = tensors.front().dim();
    if (dim <= pad_dims) {
      refuse(place, "shape " + shape_text(tensors.front()) + " has no dimension before the " +
                        std::to_string(pad_dims) + " that are padded");
    }
    std::vector<std::int64_t> largest = tensors.front().sizes().vec();
    for (const at::Tensor& tensor : tensors) {
      const auto leading = static_cast<std::size_t>(dim - pad_dims);
      if (tensor.dim() != dim || tensor.sizes().slice(0, leading) != tensors.front().sizes().slice(0, leading)) {
        refuse(place, "shapes " + shape_text(tensors.front()) + " and " + shape_text(tensor) +
                          " differ before the last " + std::to_string(pad_dims) + " dimensions");
      }
      for (std::size_t i = 0; i < largest.size(); ++i) {
        largest[i] = std::max(largest[i], tensor.size(static_cast<std::int64_t>(i)));
      }
    }
    return largest;
  }

  template <class T>
  static Value tensor_of_numbers(const Column& column) {
    std::vector<T> numbers;
    for (const Value* value : column) numbers.push_back(value->as<T>());
    return at::tensor(at::ArrayRef<T>(numbers));
  }

  static Value list_of(const Column& column) {
    ValueList list;
    for (const Value* value : column) list.push_back(*value);
    return list;
  }

  std::int64_t samples_per_group_;
  std::span<const Draw> draws_;
};

void place(Value& value, const at::Device& device) {
  if (value.is<at::Tensor>()) {
    auto& tensor = std::get<at::Tensor>(value.kind);
    if (tensor.defined() && tensor.device() != device) tensor = tensor.to(device, /*non_blocking=*/true);
  } else if (value.is<ValueMap>() || value.is<ValueList>()) {
    change_leaves(value, [&device](Value& each) { place(each, device); });
  } else if (value.is<DataContainer>()) {
    const auto& container = value.as<DataContainer>();
    const bool is_moved = !container.options().cpu_only;
    Value held = container.data();
    if (held.is<ValueList>()) {
      const ValueList& groups = held.as<ValueList>();
      if (groups.size() != 1) {
        throw DataError("a container has " + std::to_string(groups.size()) +
                        " groups for one device; collate with samples_per_group = the number of samples");
      }
      held = Value(groups.front());
    }
    value = std::move(held);
    if (is_moved) place(value, device);
  }
}

/// The same in containers: what they hold is shared, so they are made again.
void pin(Value& value) {
  if (value.is<at::Tensor>()) {
    auto& tensor = std::get<at::Tensor>(value.kind);
    if (tensor.defined()) tensor = tensor.pin_memory();
  } else if (value.is<DataContainer>() && !value.as<DataContainer>().options().cpu_only) {
    Value held = value.as<DataContainer>().data();
    change_leaves(held, pin);
    value = DataContainer(std::move(held), value.as<DataContainer>().options());
  }
}

}  // namespace

Value collate(std::span<const Value> samples, std::int64_t samples_per_group, std::span<const Draw> draws) {
  if (samples_per_group < 1) throw DataError("collate: samples_per_group must be at least 1");
  if (samples.empty()) refuse("", "there are no samples");
  Column column;
  for (const Value& sample : samples) column.push_back(&sample);
  return Joiner(samples_per_group, draws).join(column, "");
}

Batch collated(std::span<const Value> samples, std::span<const Draw> draws) {
  const auto count = static_cast<std::int64_t>(samples.size());
  Value joined = collate(samples, std::max<std::int64_t>(1, count), draws);
  if (!joined.is<ValueMap>()) throw DataError("a sample is a map of values, not " + kind_of(joined));
  return Batch(std::get<ValueMap>(std::move(joined.kind)), count);
}

Value scatter(const Value& value, const at::Device& device) {
  Value placed = value;
  place(placed, device);
  return placed;
}

Batch scatter(Batch batch, const at::Device& device) {
  batch.change_each([&device](const std::string& name, Value& value) {
    try {
      place(value, device);
    } catch (const DataError& error) {
      throw DataError("'" + name + "' of the batch: " + error.what());
    }
  });
  return batch;
}

void record_stream(Batch& batch, const c10::Stream& stream) {
  batch.change_each([&stream](const std::string&, Value& value) {
    change_leaves(value, [&stream](Value& each) {
      if (!each.is<at::Tensor>() || !each.as<at::Tensor>().defined()) return;
      const auto& tensor = each.as<at::Tensor>();
      if (tensor.device() == stream.device()) tensor.record_stream(stream);
    });
  });
}

void change_leaves(Value& value, const std::function<void(Value&)>& change) {
  if (value.is<ValueMap>()) {
    for (auto& [key, each] : std::get<ValueMap>(value.kind)) change_leaves(each, change);
  } else if (value.is<ValueList>()) {
    for (Value& each : std::get<ValueList>(value.kind)) change_leaves(each, change);
  } else {
    change(value);
  }
}

Batch pinned(Batch batch) {
  batch.change_each([](const std::string&, Value& value) { change_leaves(value, pin); });
  return batch;
}

const ValueList* values_of_samples(const Value& value, std::int64_t samples) {
  const Value* list = &value;
  if (value.is<DataContainer>()) {
    const DataContainer& container = value.as<DataContainer>();
    if (!container.options().cpu_only || !container.data().is<ValueList>()) return nullptr;
    const auto& groups = container.data().as<ValueList>();
    if (groups.size() != 1) return nullptr;
    list = &groups.front();
  }
  if (!list->is<ValueList>()) return nullptr;
  const auto& values = list->as<ValueList>();
  const bool is_of_samples = !values.empty() && static_cast<std::int64_t>(values.size()) == samples;
  return is_of_samples && !values.front().is<at::Tensor>() ? &values : nullptr;
}

}  // namespace lockstep::batch
