// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::checkpoints {

/// A value of Python: None, a bool, an int, a float, a str, a tensor, a list or tuple, or a dict.
struct PythonValue {
  struct List {
    std::vector<PythonValue> items = {};
    bool is_tuple = false;
  };
  struct Entry;
  struct Map {
    std::vector<Entry> items;
  };

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, List, Map> value;
};

struct PythonValue::Entry {
  std::variant<std::int64_t, std::string> key;
  PythonValue value;
};

/// Writes a .pt with one value, which PyTorch reads with weights_only=True. When it returns the file survives a power
/// cut; when it throws, `path` is as it was.
/// @throws CheckpointError  there is such a file (refused), a type that PyTorch does not have, or the disk fails
void write_pytorch_value(const std::string& path, const PythonValue& value);

}  // namespace lockstep::checkpoints
