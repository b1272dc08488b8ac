// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoints/store/retention.hpp"
#include "checkpoints/store/store.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::checkpoints {

using testing::TemporaryFolder;

inline std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put_bytes(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

template <class Value>
Array array_of(DType dtype, std::vector<std::int64_t> shape, const std::vector<Value>& values) {
  auto owned = std::make_shared<std::vector<Value>>(values);
  const auto bytes = std::as_bytes(std::span(*owned));
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .owner = std::move(owned)};
}

template <class Value>
std::vector<Value> values_of(const Array& array) {
  std::vector<Value> values(array.bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

/// A small checkpoint with some of everything; `step` makes two of them differ.
inline Archive sample(std::int64_t step) {
  Archive archive;
  archive.set("/", "step", step);
  std::vector<float> weights(3000);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(step) + static_cast<float>(i);
  archive.put("/model/params/fc.weight", array_of(DType::float32, {30, 100}, weights));
  archive.put("/model/params/fc.bias", array_of<float>(DType::float32, {3}, {1, 2, 3}));
  archive.put("/optim/0/step", array_of<std::int64_t>(DType::int64, {}, {step}));
  archive.set("/optim/0", "lr", 0.1);
  archive.put("/meta/config", text_array("[optim]\nlr = 0.1\n"));
  return archive;
}

/// Whether both hold the same arrays, groups and attributes, in the same order.
inline ::testing::AssertionResult same(const Archive& a, const Archive& b) {
  if (a.array_paths() != b.array_paths()) return ::testing::AssertionFailure() << "array paths differ";
  if (a.attributes_of("/") != b.attributes_of("/")) return ::testing::AssertionFailure() << "attributes of / differ";
  for (const std::string& path : a.array_paths()) {
    const Array& one = a.array(path);
    const Array& other = b.array(path);
    if (one.dtype != other.dtype || one.shape != other.shape || one.bytes.size() != other.bytes.size() ||
        !std::equal(one.bytes.begin(), one.bytes.end(), other.bytes.begin())) {
      return ::testing::AssertionFailure() << path << " differs";
    }
    if (a.attributes_of(path) != b.attributes_of(path)) return ::testing::AssertionFailure() << path << ": attributes";
  }
  std::vector<std::string> groups = a.group_paths();
  groups.emplace_back("/");
  for (const std::string& path : groups) {
    if (a.attributes_of(path) != b.attributes_of(path)) return ::testing::AssertionFailure() << path << ": attributes";
    if (a.groups_in(path) != b.groups_in(path)) return ::testing::AssertionFailure() << path << ": groups";
    if (a.arrays_in(path) != b.arrays_in(path)) return ::testing::AssertionFailure() << path << ": arrays";
  }
  return ::testing::AssertionSuccess();
}

/// The message of the CheckpointError that `action` throws; "" when it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

/// The sentence that reading says, and verifying, too.
inline std::string error_of_read(const std::string& path) {
  const std::string error = error_of([&] { read(path); });
  EXPECT_EQ(error_of([&] { verify(path); }), error);
  return error;
}

/// All names in a folder, sorted.
inline std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::checkpoints
