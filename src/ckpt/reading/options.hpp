// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/keys/command.hpp"

namespace lockstep::ckpt {

/// The arguments after `ckpt COMMAND`.
class Request {
 public:
  std::vector<std::string> paths;  ///< the words that are no options
  const std::vector<families::FamilyRow>* known_families = &families::builtin_families();

  bool has(const std::string& option) const { return values_.contains(option); }
  /// The last value given, or `otherwise`.
  std::string text(const std::string& option, const std::string& otherwise = "") const;
  const std::vector<std::string>& texts(const std::string& option) const;
  /// @throws Failure  no integer from `least` up
  std::int64_t integer(const std::string& option, std::int64_t otherwise, std::int64_t min = 0) const;
  /// @throws Failure  no finite number from 0 up
  double real(const std::string& option, double otherwise) const;

  bool wants_json() const { return has("json"); }
  void set(const std::string& option, std::string value) { values_[option].push_back(std::move(value)); }

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

/// The options that every command has.
const std::vector<CommandOption>& common_options();

/// @param words  after the command
/// @throws Failure  an unknown option (with the nearest), one without its value, or a switch with one
Request parse(const std::vector<std::string>& words, const std::vector<CommandOption>& options);

}  // namespace lockstep::ckpt
