// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// Collects the modules' tables of keys and says what value each key has and where that value came from.
///
/// A key has one name, `section.key`, on the command line (`--optim.lr=0.1`) and in an INI file (`lr = 0.1` under
/// `[optim]`). A key without a dot belongs to the unnamed section "" and stands at the top of a file. In a
/// file, '#' begins a comment at the start of a line and after a blank, and surrounding blanks do not count. A value
/// between quotes is taken as it is; two quotes stand for one. Values have no control characters.
namespace lockstep::config {

/// The treatment of former names of keys (KeySpec::old_names) and of former settings (KeySpec::replaces).
enum class OldNames {
  refused,     ///< ConfigError with the new name: for what users write
  translated,  ///< it sets the key that has the new name: for what an earlier version stored
};

/// Who sets a key.
enum class Author {
  program,  ///< Lockstep, from other keys, or from what an earlier run stored
  user,     ///< a file or the command line: Config::require_read holds for the key
};

/// The value of every declared key.
class Config {
 public:
  /// All keys at their defaults. Several rows of a table may declare the same key; the first declaration counts.
  /// @throws std::logic_error  two declarations of a key differ in type, a default does not fit its own key, or an old
  ///                           name is a key of its own or the old name of two keys
  explicit Config(const KeySpecs& specs);

  /// @param name  as in `optim`, or "" for the keys without a dot; a section that was never declared is empty
  const Section& section(const std::string& name) const;
  const std::map<std::string, Section>& sections() const noexcept { return sections_; }
  /// Every key once, in the order of declaration.
  const KeySpecs& specs() const noexcept { return specs_; }
  const KeyValue& value(const std::string& name) const;  ///< full name; std::logic_error if never declared

  KeyValue effective(const std::string& name) const;  ///< full name; see Section::effective

  /// Sets a key by its full name; the latest value wins, and a repeatable key collects the values of one origin.
  /// @param origin  "command line", "file.ini:12", "derived", ...: what messages and tables name as the source
  /// @throws ConfigError  unknown key (with the nearest name), former name or setting, or a value that does not fit
  void set(const std::string& name, const std::string& text, const std::string& origin,
           Author author = Author::program);
  /// Sets what the INI file says; each value's origin is "path:line". A file that to_ini wrote is read as stored text:
  /// old names are translated, and require_read does not hold for it.
  /// @throws ConfigError  unreadable file, malformed line, unknown section or key, or a value that does not fit
  void read_file(const std::string& path);
  /// The same for text that is at hand, such as the configuration inside a checkpoint.
  /// @param source  what messages call the text
  void read_ini(const std::string& text, const std::string& source, OldNames old_names = OldNames::refused);

  /// @throws ConfigError  `name` is an old name of a key, or with `text` a former setting; the message has the new one
  void refuse_former(const std::string& name, const std::string& text, const std::string& origin) const;

  /// @throws ConfigError  a key that a user has set is not read by the chosen model, source, optimizer or other part
  void require_read() const;

  /// Every key and value as an INI file, which read_file reads back to the same values; origins stand in comments.
  std::string to_ini() const;
  /// `{"optim.lr": {"value": 0.1, "origin": "command line"}, ...}`, indented, with typed values.
  std::string to_json() const;
  /// A table for people: every key, its value and where that came from.
  std::string explain() const;

 private:
  /// A former setting and the key that replaces it.
  struct Replacement {
    const FormerSetting* former;
    const KeySpec* key;
  };
  /// The keys that replace a former setting: one or several; none if it is no former setting.
  std::vector<Replacement> replacements_of(const std::string& name, const std::string& text) const;
  /// Whether the choice was made that read a former setting.
  bool was_read(const FormerSetting& former) const;
  std::string translated(const Replacement& replacement, const std::string& text) const;
  /// The value of a key that means what `text` meant in earlier versions: commas instead of slashes in lists, and the
  /// new names of forms and options.
  std::string todays_value(const std::string& name, const std::string& text) const;
  Section& section_holding(const std::string& name, const std::string& origin);

  KeySpecs specs_;
  std::map<std::string, Section> sections_;
  std::map<std::string, std::string> new_names_;  // new names by old name
  std::set<std::string> set_by_user_;
};

/// The first line of Config::to_ini.
inline constexpr const char* kIniHeader = "# The value of every key; --config=FILE reads it back.";

/// "optim" of "optim.lr", "" of "resume".
std::string section_of(const std::string& name);
/// "lr" of "optim.lr", "resume" of "resume".
std::string key_of(const std::string& name);

/// The names of all sections that have keys, in the order of declaration; "" is not among them.
std::vector<std::string> section_names(const KeySpecs& specs);

}  // namespace lockstep::config
