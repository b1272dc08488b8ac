// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::batch {

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
