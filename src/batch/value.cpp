// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/batch/batch.hpp>
#include <lockstep/core/error.hpp>

#include <array>

#include "core/text/text_stream.hpp"

namespace lockstep::batch {

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

}  // namespace lockstep::batch
