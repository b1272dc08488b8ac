// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace lockstep {

enum class KeyType { boolean, integer, real, text, choice, integers, reals, texts };

/// Declares one configuration key: each module lists its own in a table, and config collects the tables.
///
/// The name is what a user writes on the command line (`--optim.lr=0.1`) and, split at the dot, in an INI file.
/// `integers` and `reals` are comma-separated lists, `texts` is a key that may be given several times.
struct KeySpec {
  std::string name;           ///< "section.key"; a key without a dot stands at the top of a file
  KeyType type;               ///< decides what is accepted and which getter of Section reads it
  std::string default_value;  ///< in the spelling a user would write
  std::string help;           ///< one line: what it sets, with its unit
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_is_exclusive = false;
  std::vector<std::string> choices = {};  ///< for `choice`: the accepted words
  /// For help, of a text that holds options of its own: its forms, each with its options as `parts`.
  std::vector<KeySpec> parts = {};
  /// Full names ("section.key") that this key had earlier. A user who gives one is told the new name; in the
  /// configuration that a checkpoint holds, it is translated.
  std::vector<std::string> old_names = {};
};

using KeySpecs = std::vector<KeySpec>;

/// The accepted values in words, such as "a number in (0, 1]" or "one of: auto, self, shm".
std::string range_of(const KeySpec& spec);

/// The sentence part that says what is wrong with `text` as a value of this key; empty when it is right.
std::string fault_in(const KeySpec& spec, const std::string& text);

/// Of `names` the one a user most likely meant by `word` (edit distance), or "" when none is near.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names);

}  // namespace lockstep

/// Builders of KeySpec, one for each type. Defaults are written as a user would write them.
namespace lockstep::keys {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

KeySpec boolean(const std::string& name, const std::string& default_value, const std::string& help);

/// @param min, max  inclusive
KeySpec integer(const std::string& name, const std::string& default_value, const std::string& help,
                double min = -kUnlimited, double max = kUnlimited);
/// @param min, max  inclusive
KeySpec real(const std::string& name, const std::string& default_value, const std::string& help,
             double min = -kUnlimited, double max = kUnlimited);
/// A number greater than `min_exclusive` and at most `max`.
KeySpec real_above(const std::string& name, double min_exclusive, double max, const std::string& default_value,
                   const std::string& help);

KeySpec text(const std::string& name, const std::string& default_value, const std::string& help);
KeySpec choice(const std::string& name, const std::string& default_value, const std::string& help,
               const std::vector<std::string>& choices);

/// A comma-separated list. @param min, max  of each number, inclusive
KeySpec integers(const std::string& name, const std::string& default_value, const std::string& help,
                 double min = -kUnlimited, double max = kUnlimited);
/// A comma-separated list. @param min, max  of each number, inclusive
KeySpec reals(const std::string& name, const std::string& default_value, const std::string& help,
              double min = -kUnlimited, double max = kUnlimited);
/// A key that can be given several times. @param default_value  its only text; "" = none
KeySpec texts(const std::string& name, const std::string& default_value, const std::string& help);

/// The key, which was once called `old_name`: see KeySpec::old_names.
KeySpec renamed(KeySpec key, const std::string& old_name);

}  // namespace lockstep::keys
