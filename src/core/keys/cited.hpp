// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A setting and how a message names its key: "optim.lr (recipe.ini:3)". Two are equal if their values are.
template <class T>
struct Cited {
  T value = {};
  std::string cite = "";

  bool operator==(const Cited& other) const { return value == other.value; }
};

inline Cited<std::int64_t> cited_integer(const Section& section, const std::string& key) {
  return {section.integer(key), section.cite(key)};
}

/// A `text` or `choice` key.
inline Cited<std::string> cited_text(const Section& section, const std::string& key) {
  return {section.text(key), section.cite(key)};
}

inline Cited<std::vector<std::string>> cited_texts(const Section& section, const std::string& key) {
  return {section.texts(key), section.cite(key)};
}

}  // namespace lockstep
