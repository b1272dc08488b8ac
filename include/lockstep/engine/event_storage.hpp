// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// Where hooks leave values for the next line of the log: what one hook measures another writes.
class EventStorage {
 public:
  /// Sets a value; one of the same name is replaced in its place.
  void put(const std::string& name, Record::Value value) {
    for (auto& [known, held] : values_) {
      if (known == name) {
        held = std::move(value);
        return;
      }
    }
    values_.emplace_back(name, std::move(value));
  }

  /// Everything put since the last call, in order of first mention.
  std::vector<std::pair<std::string, Record::Value>> take() { return std::exchange(values_, {}); }

 private:
  std::vector<std::pair<std::string, Record::Value>> values_;
};

}  // namespace lockstep::engine
