// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

enum class KeyType { boolean, integer, real, text, choice, integers, reals, texts, words };

/// A setting of earlier versions that a key replaces. In a user's configuration, it is an error that states the new
/// setting. In the configuration of a checkpoint, it is translated. If `key` is the key itself, values are former ones
/// for which `translate` returns another value.
struct FormerSetting {
  std::string key;        ///< "section.key"; "key" for an option of an entry
  std::string word = "";  ///< first word of the former value, if the key still exists; "" = any value
  /// The new value. `current` is the value that the new key has so far; "" if it is the default. Returns "" if no value
  /// of the new key means the same: then a checkpoint is read without the setting.
  std::function<std::string(const std::string& former, const std::string& current)> translate = {};
  std::string hint = "";  ///< advice in the error message if no new value means the same
  std::string note = "";  ///< clause of the error message after the new value
  /// "section.key=value": the only choice that read the former setting. Checkpoints of other choices are read without
  /// it.
  std::string only_with = "";
};

/// The choices that read a key, where not every run reads it, or where the default depends on a choice.
struct KeyReaders {
  /// Keys that choose by their value, or by `name=` in it: {"optim.name", "optim.part"}. Empty =
  /// every run reads the key, and it has one default.
  std::vector<std::string> selectors = {};
  std::map<std::string, std::string> defaults = {};  ///< default value by choice: {"adamw", "0.01"}
  bool are_all = false;                              ///< other choices read the key, too, with the default `otherwise`
  std::string otherwise = {};                        ///< default of the choices that are not in `defaults`
  std::vector<std::string> except = {};              ///< choices that do not read the key, if are_all
};

/// Declares one configuration key. Each module lists its keys; module config collects the lists.
///
/// The name is used on the command line (`--optim.lr=0.1`) and, split at the dot, in an INI file. `integers`, `reals`
/// and `words` are comma-separated lists. Words contain no slashes. A key of type `texts` can be repeated.
struct KeySpec {
  std::string name;           ///< "section.key"; a key without a dot is at the top of a file
  KeyType type;               ///< type of the value; selects the getter of Section
  std::string default_value;  ///< default value as a user would write it
  std::string help;           ///< one line: meaning and unit
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_is_exclusive = false;
  std::vector<std::string> choices = {};  ///< accepted values of a key of type `choice`
  /// The choices of a key, or the possible forms of a text, each with its options as `parts`. They are used for help,
  /// and for texts of earlier versions: former names of forms and options.
  std::vector<KeySpec> parts = {};
  /// Former names ("section.key") of this key. In a user's configuration, a former name is an error that states the new
  /// name. In the configuration of a checkpoint, it is translated.
  std::vector<std::string> old_names = {};
  std::string section_title = {};            ///< one line of help for the section of the key, see keys::titled
  std::vector<FormerSetting> replaces = {};  ///< settings of earlier versions with values of another form
  /// If the defaults of the choices differ, `default_value` is "auto": the default of the choice.
  KeyReaders readers = {};
  bool is_expert = false;  ///< the help of a section only names the key
};

using KeySpecs = std::vector<KeySpec>;

/// The accepted values as text, such as "a number in (0, 1]" or "one of: auto, self, shm".
std::string range_of(const KeySpec& spec);

/// The reason why `text` is not a valid value of this key; empty if it is valid.
std::string fault_in(const KeySpec& spec, const std::string& text);

/// A list that has slashes between its elements, as in earlier versions, with commas; "" if it is no such list.
std::string with_commas(const KeySpec& spec, std::string list);

/// The name that is most similar to `word` (edit distance), or "" if none is similar.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names);

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
  const std::string& text(const std::string& key) const;  ///< `text`, `choice` and `words` keys
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> reals(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;

  const std::string& origin(const std::string& key) const;
  bool is_default(const std::string& key) const { return origin(key) == "default"; }
  /// The value of a key with the default of the choice in the place of "auto", and the origin of that default.
  KeyValue effective(const std::string& key) const;

  /// "optim.lr" for key "lr" of section "optim".
  std::string full_name(const std::string& key) const;
  /// "optim.lr (recipe.ini:3)": name and origin of a key, for messages about its value.
  std::string cite(const std::string& key) const;

  /// The values by key, in alphabetical order.
  const std::map<std::string, KeyValue>& values() const noexcept { return values_; }

 private:
  const KeyValue& at(const std::string& key, KeyType type) const;
  const std::string& text_at(const std::string& key, KeyType type) const;

  std::string name_;
  std::map<std::string, KeyValue> values_;
};

/// All sections of a run's configuration, by name.
using Sections = std::map<std::string, Section>;

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
/// A comma-separated list of words.
KeySpec words(const std::string& name, const std::string& default_value, const std::string& help);
/// A key that can be repeated. @param default_value  the only text; "" = none
KeySpec texts(const std::string& name, const std::string& default_value, const std::string& help);

/// The key with a former name, see KeySpec::old_names.
KeySpec renamed(KeySpec key, const std::string& old_name);

/// The key as one that only some choices of the key `selector` read, with one default.
KeySpec read_by(KeySpec key, const std::string& selector, const std::vector<std::string>& choices);
/// The key as one that all choices of the key `selector` read, except these.
KeySpec not_read_by(KeySpec key, const std::string& selector, const std::vector<std::string>& choices);
/// The key as one that only experts set, see KeySpec::is_expert.
KeySpec expert(KeySpec key);

/// The keys of a section with its title. In help, the first key with a title counts.
KeySpecs titled(const std::string& section_title, KeySpecs keys);
/// The key that replaces a former setting, see KeySpec::replaces.
KeySpec replacing(KeySpec key, FormerSetting former);

}  // namespace lockstep::keys
