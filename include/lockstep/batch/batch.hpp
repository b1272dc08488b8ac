// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>
#include <lockstep/batch/value.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::batch {

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
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() = default;

  std::int64_t size() const noexcept { return size_; }  ///< number of samples
  const ValueMap& values() const noexcept { return values_; }

  bool has(const std::string& key) const { return values_.contains(key); }
  /// @throws DataError  no value has this name; the message lists the names that exist
  const Value& at(const std::string& key) const;
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
  Batch share() const;

 private:
  ValueMap values_;
  std::int64_t size_ = 0;
  std::shared_ptr<const Roles> roles_;  // null = the default
  std::shared_ptr<const ByteTables> byte_tables_;
  std::vector<Draw> draws_;
};

}  // namespace lockstep::batch
