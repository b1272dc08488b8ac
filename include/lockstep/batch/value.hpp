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

/// Options of collation: how the data of several samples are combined into a batch.
struct ContainerOptions {
  bool stack = false;               ///< stack the data of a group of samples into one tensor, padded as pad_dims states
  double padding_value = 0;         ///< value of padded elements
  bool cpu_only = false;            ///< the data are not converted and never moved to a device
  std::optional<int> pad_dims = 2;  ///< trailing dimensions that can differ: 1 to 3; none = no difference
};

/// A value of a sample with its own options of collation. After `collate`, it contains a list with one element per
/// group of samples.
class DataContainer {
 public:
  /// @throws ConfigError  pad_dims is neither none nor 1, 2 or 3
  explicit DataContainer(Value data, ContainerOptions options = {});

  const Value& data() const noexcept { return *data_; }
  const ContainerOptions& options() const noexcept { return options_; }
  /// The shape of the tensor. Throws DataError if the data are not a tensor.
  std::vector<std::int64_t> size() const;
  std::int64_t dim() const;
  /// The number of elements of a list or map, of bytes of a text, or the first dimension of a tensor.
  /// @throws DataError  the data have no length
  std::int64_t length() const;

 private:
  std::shared_ptr<const Value> data_;
  ContainerOptions options_;
};

using ValueList = std::vector<Value>;
using ValueMap = std::map<std::string, Value>;

/// A value of a sample or a batch: a tree of tensors, numbers, texts, lists and maps. std::monostate is "nothing".
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
