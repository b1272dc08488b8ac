// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
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

/// The names of the values of a batch that are the inputs and the targets of the model, in order.
struct Roles {
  std::vector<std::string> inputs = {"data"};
  std::vector<std::string> targets = {"label"};

  bool operator==(const Roles&) const = default;
};

/// The tables by the name of a uint8 value [N, C, H, W]: the float32 number of each byte of each channel, [C, 256].
using ByteTables = std::map<std::string, at::Tensor>;

/// The samples of one forward pass, as values by name. Most values are tensors [N, ...] with one row per sample; others
/// are lists or texts. A batch owns its values and can only be moved.
///
/// A loader reuses the memory of a batch only when nothing else refers to it.
class Batch {
 public:
  Batch() = default;
  /// @param data   [N, ...] the value "data", which is the input
  explicit Batch(at::Tensor data) : Batch(std::move(data), at::Tensor()) {}
  /// @param label  [N, ...] the value "label", which is the target; undefined = the batch has none
  Batch(at::Tensor data, at::Tensor label);
  /// @param size   number of samples
  Batch(ValueMap values, std::int64_t size) : values_(std::move(values)), size_(size) {}
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;
  Batch& operator=(const Batch&) = delete;
  ~Batch() = default;

  std::int64_t size() const noexcept { return size_; }  ///< number of samples
  const ValueMap& values() const noexcept { return values_; }

  bool has(const std::string& key) const { return values_.contains(key); }
  /// @throws DataError  no value has this name; the message lists the names that exist
  const Value& at(const std::string& key) const;
  /// The value with this name, whatever its role is; `input` and `target` follow data.input_keys and data.target_keys.
  /// @throws DataError  the value does not exist, or is not a tensor
  const at::Tensor& tensor(const std::string& key) const;
  /// The tensors of a list, or a list with the one tensor that the value is.
  /// @throws DataError  the value does not exist, or is neither of these
  std::vector<at::Tensor> tensors(const std::string& key) const;
  void set(const std::string& key, Value value) { values_[key] = std::move(value); }

  const Roles& roles() const noexcept;
  void set_roles(std::shared_ptr<const Roles> roles) noexcept { roles_ = std::move(roles); }
  /// The tensor with the role of input `i`.
  /// @throws DataError  the role or the value does not exist, or the value is not a tensor
  const at::Tensor& input(std::size_t i = 0) const { return tensor(input_key(i)); }
  const std::string& input_key(std::size_t i = 0) const;
  void set_input(Value value, std::size_t i = 0) { set(input_key(i), std::move(value)); }
  /// Whether a value with the role of target `i` exists.
  bool has_target(std::size_t i = 0) const { return i < roles().targets.size() && has(roles().targets[i]); }
  /// The tensor with the role of target `i`. Throws like `input`.
  const at::Tensor& target(std::size_t i = 0) const { return tensor(target_key(i)); }
  const std::string& target_key(std::size_t i = 0) const;

  /// The values that are bytes of images and become float32 numbers on the device of the model, before
  /// models::Model::preprocess; null = there are none.
  const std::shared_ptr<const ByteTables>& byte_tables() const noexcept { return byte_tables_; }
  void set_byte_tables(std::shared_ptr<const ByteTables> tables) noexcept { byte_tables_ = std::move(tables); }

  /// The draws of the samples, in order; empty if they are unknown.
  const std::vector<Draw>& draws() const noexcept { return draws_; }
  void set_draws(std::vector<Draw> draws) { draws_ = std::move(draws); }

  /// Calls `change` for the tensor that a value is, or for each tensor of a list or map. Has no effect on other values.
  void change(const std::string& key, const std::function<void(at::Tensor&)>& change);
  /// Calls `change` for every value; it can replace the value.
  void change_each(const std::function<void(const std::string& key, Value& value)>& change);

  /// Removes the first samples: their rows of tensors, their elements of lists with one element per sample, and their
  /// draws. The tensors keep their memory.
  /// @param count  in [0, size()]
  void drop_first(std::int64_t count);

  /// A second batch with the same tensors and values; the tensors share memory.
  Batch share() const { return Batch(*this); }

 private:
  Batch(const Batch&) = default;

  ValueMap values_;
  std::int64_t size_ = 0;
  std::shared_ptr<const Roles> roles_;  // null = the default
  std::shared_ptr<const ByteTables> byte_tables_;
  std::vector<Draw> draws_;
};

/// The tensors that a model returns, by name and in order. A list of tensors has several entries with the same name.
/// The first entry is the main output, usually named "output".
class Outputs {
 public:
  using Entry = std::pair<std::string, at::Tensor>;

  Outputs() = default;
  /// A single tensor named "output".
  Outputs(at::Tensor output) { entries_.emplace_back("output", std::move(output)); }
  Outputs(std::initializer_list<Entry> entries) : entries_(entries) {}

  void add(std::string name, at::Tensor tensor) { entries_.emplace_back(std::move(name), std::move(tensor)); }
  void add(const std::string& name, const std::vector<at::Tensor>& list) {
    for (const at::Tensor& tensor : list) entries_.emplace_back(name, tensor);
  }

  bool is_empty() const noexcept { return entries_.empty(); }
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::vector<Entry>& entries() noexcept { return entries_; }

  /// The first entry. Throws ConfigError if there is none.
  const at::Tensor& main() const;
  /// The first entry with this name, or an undefined tensor.
  at::Tensor find(const std::string& name) const;
  /// The first entry with this name. Throws ConfigError, with the names that exist, if there is none.
  const at::Tensor& tensor(const std::string& name) const;
  /// All entries with this name, in order; can be empty.
  std::vector<at::Tensor> list(const std::string& name) const;

  /// The same tensors, detached from the autograd graph.
  Outputs detached() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep::batch
