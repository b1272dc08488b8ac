// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// One value of a key, and where it came from.
struct KeyValue {
  KeySpec spec;
  std::vector<std::string> texts;  ///< as written; one element unless the key may be repeated
  std::string origin;              ///< "default", "file.ini:12", "command line", or what set it
};

/// The typed values of one configuration section, which every row of a table of choices is built from.
///
/// Values were checked against their KeySpec when they were set, so a getter fails only for a key that was
/// never declared or is read as another type: a mistake in the program, reported as std::logic_error.
class Section {
 public:
  Section() = default;
  explicit Section(std::string name) : name_(std::move(name)) {}

  /// A section holding the defaults of those `specs` whose names begin with `name` and a dot.
  static Section with_defaults(const std::string& name, const KeySpecs& specs);

  const std::string& name() const noexcept { return name_; }
  bool has(const std::string& key) const { return values_.contains(key); }

  /// Declares a key with its default.
  void declare(const KeySpec& spec);
  /// Sets a declared key. A `texts` key that already has a value from the same origin gets one more.
  /// @throws ConfigError  unknown key (with the nearest name), or a value that its spec refuses
  void set(const std::string& key, const std::string& text, const std::string& origin);

  bool boolean(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;  ///< `text` and `choice` keys
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> reals(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;

  const std::string& origin(const std::string& key) const;
  bool is_default(const std::string& key) const { return origin(key) == "default"; }

  /// "optim.lr" for key "lr" of section "optim".
  std::string full_name(const std::string& key) const;
  /// "optim.lr (recipe.ini:3)": how a message names a key whose value turned out wrong.
  std::string cite(const std::string& key) const;

  /// By key, in alphabetical order.
  const std::map<std::string, KeyValue>& values() const noexcept { return values_; }

 private:
  const KeyValue& at(const std::string& key, KeyType type) const;

  std::string name_;
  std::map<std::string, KeyValue> values_;
};

/// All sections of a run's configuration, by name.
using Sections = std::map<std::string, Section>;

}  // namespace lockstep
