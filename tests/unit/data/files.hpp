// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/draws.hpp"
#include "support/sentence.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::data {

using testing::draws_of;
using testing::sentence_of;
using testing::TemporaryFolder;

/// Section `data` with its defaults and these values.
inline Section section(const std::map<std::string, std::string>& values) {
  Section data = Section::with_defaults("data", data_keys());
  for (const auto& [key, text] : values) data.set(key, text, "command line");
  return data;
}

inline Splits open_with(const std::map<std::string, std::string>& values) { return open(section(values)); }

inline Splits open_fields(std::map<std::string, std::string> values) {
  values["name"] = "fields";
  return open_with(values);
}

/// The numbers of a tensor, one after the other.
template <class T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const T* data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}

inline batch::Batch get(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  return dataset.get(draws_of(indices));
}

}  // namespace lockstep::data
