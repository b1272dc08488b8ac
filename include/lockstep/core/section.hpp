// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The value of a key and its origin.
struct KeyValue {
  KeySpec spec;
  std::vector<std::string> texts;  ///< texts as written; one element, unless the key can be repeated
  std::string origin;              ///< "default", "file.ini:12", "command line", or another origin
};

/// The typed values of one configuration section. Models, optimizers and other parts are created from it.
///
/// Values are checked when they are set. A getter therefore fails only if the key was not declared or has another type,
/// which is an error of the program (std::logic_error).
class Section {
 public:
  Section() = default;
  explicit Section(std::string name) : name_(std::move(name)) {}

  /// A section with the defaults of those `specs` that have names starting with `name` and a dot.
  static Section with_defaults(const std::string& name, const KeySpecs& specs);

  const std::string& name() const noexcept { return name_; }
  bool has(const std::string& key) const { return values_.contains(key); }

  /// Declares a key with its default.
  void declare(const KeySpec& spec);
  /// Sets a declared key. A key of type `texts` with a value from the same origin gets an additional value.
  /// @throws ConfigError  the key is unknown (the message states the most similar name), or the value is not valid
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
  /// "optim.lr (recipe.ini:3)": name and origin of a key, for messages about its value.
  std::string cite(const std::string& key) const;

  /// The values by key, in alphabetical order.
  const std::map<std::string, KeyValue>& values() const noexcept { return values_; }

 private:
  const KeyValue& at(const std::string& key, KeyType type) const;

  std::string name_;
  std::map<std::string, KeyValue> values_;
};

/// All sections of a run's configuration, by name.
using Sections = std::map<std::string, Section>;

}  // namespace lockstep
