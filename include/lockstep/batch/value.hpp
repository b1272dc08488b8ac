// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::batch {

struct Value;

/// How the samples' parts in a container become a batch.
struct ContainerOptions {
  bool stack = false;               ///< one tensor for each group of samples, padded where pad_dims says
  double padding_value = 0;         ///< what a sample's own tensor is padded with
  bool cpu_only = false;            ///< anything that is kept as it is and never moved to a device
  std::optional<int> pad_dims = 2;  ///< trailing dimensions that may differ: 1, 2 or 3; none = all must be equal
};

/// A part of a sample that says itself how it is collated and scattered; after `collate`, a list with one element for
/// each group of samples.
class DataContainer {
 public:
  /// @throws ConfigError  pad_dims is neither none nor 1, 2 or 3
  explicit DataContainer(Value data, ContainerOptions options = {});

  const Value& data() const noexcept { return *data_; }
  const ContainerOptions& options() const noexcept { return options_; }
  /// Of the tensor. @throws DataError  the data are not a tensor
  std::vector<std::int64_t> size() const;
  std::int64_t dim() const;
  /// Elements of a list or map, characters of a text, the first size of a tensor.
  /// @throws DataError  the data have no length
  std::int64_t length() const;

 private:
  std::shared_ptr<const Value> data_;
  ContainerOptions options_;
};

using ValueList = std::vector<Value>;
using ValueMap = std::map<std::string, Value>;

/// What a sample or a batch is made of: a tree of tensors and whatever belongs to them. std::monostate is "nothing".
struct Value {
  using Kinds =
      std::variant<std::monostate, at::Tensor, std::int64_t, double, std::string, ValueList, ValueMap, DataContainer>;

  Value() = default;
  Value(at::Tensor tensor) : kind(std::move(tensor)) {}
  Value(int number) : kind(std::int64_t{number}) {}
  Value(std::int64_t number) : kind(number) {}
  Value(double number) : kind(number) {}
  Value(const char* text) : kind(std::string(text)) {}
  Value(std::string text) : kind(std::move(text)) {}
  Value(ValueList list) : kind(std::move(list)) {}
  Value(ValueMap map) : kind(std::move(map)) {}
  Value(DataContainer container) : kind(std::move(container)) {}

  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(kind);
  }
  /// @throws std::bad_variant_access  it is of another kind
  template <class T>
  const T& as() const {
    return std::get<T>(kind);
  }

  Kinds kind;
};

/// "nothing", "a tensor", "a list", ... for messages.
std::string kind_of(const Value& value);

/// The shape of a tensor for messages, such as "[3, 28, 28]".
std::string shape_text(const at::Tensor& tensor);

}  // namespace lockstep::batch
