// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/keys/command.hpp"

/// The command line of `ckpt`: exit codes, arguments and the commands.
namespace lockstep::ckpt {

/// The exit codes of `ckpt`.
enum class Exit : int {
  ok = 0,
  differences = 1,  ///< only used by `diff`
  usage = 2,        ///< the command line, or a file of a kind that `ckpt` does not read
  io = 3,
  corrupt = 4,
  policy = 5,
  incompatible = 6,
  refused = 7,  ///< not done, for safety
  not_found = 8,
  internal = 70,
};

/// Ends the program with one sentence.
class Failure : public std::runtime_error {
 public:
  Failure(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const noexcept { return code_; }

 private:
  Exit code_;
};

/// The command line is wrong.
inline Failure usage_error(const std::string& message) { return {Exit::usage, message}; }

/// The exit code that belongs to an error of ours; `internal` for any other.
Exit exit_code_of(const std::exception& error);

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

/// Its options are those besides the common ones.
using CkptCommand = CommandRow<Exit(const Request& request)>;

// Each prints its answer; throws Failure or Error where there is none.
Exit info(const Request& request);
Exit list(const Request& request);
Exit tree(const Request& request);
Exit show(const Request& request);
Exit stat(const Request& request);
Exit hist(const Request& request);
Exit verify(const Request& request);
Exit diff(const Request& request);
Exit hash(const Request& request);
Exit convert(const Request& request);
Exit doctor(const Request& request);
Exit prune(const Request& request);
Exit lineage(const Request& request);
Exit average(const Request& request);
Exit cast(const Request& request);
Exit edit(const Request& request);

/// The program's table.
const std::vector<CkptCommand>& commands();

/// Finds the command and runs it; says in one sentence on the standard error what went wrong.
Exit run_here(const std::vector<std::string>& words,
              const std::vector<families::FamilyRow>& families = families::builtin_families());

}  // namespace lockstep::ckpt
