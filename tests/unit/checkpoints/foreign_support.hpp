// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <sys/wait.h>

#include "checkpoints/foreign/foreign.hpp"
#include "support.hpp"
#include "support/program.hpp"
#include "zip_support.hpp"

namespace lockstep::checkpoints {

inline std::string error_of_foreign(const std::string& path) {
  return error_of([&] { read_foreign(path); });
}

/// One array of each type, of various shapes; the bytes are distinct and, for booleans, 0 and 1.
inline std::vector<NamedArray> arrays_of_all_dtypes() {
  std::vector<NamedArray> arrays;
  const auto add = [&](const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    std::size_t count = size_of(dtype);
    for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
    std::vector<std::uint8_t> bytes(count);
    for (std::size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<std::uint8_t>(dtype == DType::boolean ? i % 2 : 7 * i + 1);
    }
    arrays.push_back({name, array_of(dtype, std::move(shape), bytes)});
  };
  for (const DType dtype : kAllDTypes) {
    const std::string name(name_of(dtype));
    add(name + ".vector", dtype, {5});
    add(name + ".scalar", dtype, {});
    add(name + ".empty", dtype, {2, 0, 3});
    add(name + ".cube", dtype, {2, 3, 2});
  }
  add("name with / and % and Ümläute 模型", DType::int32, {3});
  add(".", DType::uint8, {2});
  return arrays;
}

/// The shell command that runs a Python with these modules, or "" when there is none.
inline std::string python_with(const std::string& modules) {
  const char* const given = std::getenv("PYTHON");
  for (const std::string candidate : {given == nullptr ? "" : given, "python3", "/usr/bin/python3"}) {
    if (candidate.empty()) continue;
    const auto outcome = testing::run_shell(candidate + " -c 'import " + modules + "'", 60);
    if (outcome.exit_code == 0) return candidate;
  }
  return "";
}

}  // namespace lockstep::checkpoints
