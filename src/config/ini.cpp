// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "config/config.hpp"
#include "core/text/text.hpp"
#include "core/text/text_files.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::config {

namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string read_text_file(const std::string& path) {
  const auto fault = [&path](const std::string& reason) {
    return ConfigError("config file " + path + " cannot be read: " + reason);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) throw fault(std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) throw fault(std::strerror(errno));
  if (text.find('\0') != std::string::npos) throw fault("it is a binary file");
  if (text.size() > kMaxFileBytes) throw fault("it is larger than 1 MiB");
  return plain_text(text);
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// A '#' begins a comment at the start of the text and after a blank.
std::string without_comment(const std::string& text) {
  for (std::size_t i = text.find('#'); i != std::string::npos; i = text.find('#', i + 1)) {
    if (i == 0 || is_blank(text[i - 1])) return trimmed(text.substr(0, i));
  }
  return trimmed(text);
}

/// The value between quotes, of which two stand for one, if nothing but a comment follows.
std::optional<std::string> quoted_value(const std::string& text) {
  if (!text.starts_with('"')) return std::nullopt;
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] != '"') {
      value += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == '"') {
      value += text[i++];
    } else {
      const bool is_end =
          i + 1 == text.size() || (is_blank(text[i + 1]) && without_comment(text.substr(i + 1)).empty());
      return is_end ? std::optional(value) : std::nullopt;
    }
  }
  return std::nullopt;
}

bool is_header(const std::string& code) { return code.size() >= 2 && code.front() == '[' && code.back() == ']'; }

/// @param new_names  of keys, by old name: the section of an old name is not unknown
void check_section(const std::string& name, const KeySpecs& specs, const std::map<std::string, std::string>& new_names,
                   const std::string& origin) {
  const std::vector<std::string> known = section_names(specs);
  const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
  const bool is_old = std::any_of(new_names.begin(), new_names.end(),
                                  [&name](const auto& renamed) { return section_of(renamed.first) == name; });
  if (is_known || is_old) return;
  const std::string near = nearest_name(name, known);
  throw ConfigError(origin + ": section [" + name + "] is unknown; " +
                    (near.empty() ? "--help lists the sections" : "did you mean [" + near + "]?"));
}

struct Setting {
  std::string name;  ///< includes the section
  std::string value;
  std::string origin;
};

/// @param line  without blanks around it
Setting parse_line(const std::string& section, const std::string& line, const std::string& origin) {
  const std::size_t sign = line.find('=');
  const std::string key = sign == std::string::npos ? "" : trimmed(line.substr(0, sign));
  if (key.empty() || key.find('#') != std::string::npos) {
    throw ConfigError(origin + ": '" + without_comment(line) + "' is neither 'key = value' nor '[section]'");
  }
  const std::string text = line.substr(sign + 1);
  const std::optional<std::string> quoted = quoted_value(trimmed(text));
  return {(section.empty() ? "" : section + ".") + key,
          quoted ? *quoted : trimmed(without_comment("=" + text).substr(1)), origin};
}

}  // namespace

void Config::read_file(const std::string& path) {
  const std::string text = read_text_file(path);
  read_ini(text, path, text.starts_with(kIniHeader) ? OldNames::translated : OldNames::refused);
}

void Config::read_ini(const std::string& text, const std::string& source, OldNames old_names) {
  TextReader lines(text);
  std::map<std::string, std::string> first_origins;  // one origin for all lines of a repeatable key
  std::vector<Setting> former_settings;
  std::string section;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string origin = source + ":" + std::to_string(++number);
    const std::string code = without_comment(line);
    if (code.empty()) continue;
    if (is_header(code)) {
      section = without_comment(code.substr(1, code.size() - 2));
      check_section(section, specs_, new_names_, origin);
      continue;
    }
    const Setting setting = parse_line(section, trimmed(line), origin);
    if (old_names == OldNames::translated && !replacements_of(setting.name, setting.value).empty()) {
      former_settings.push_back(setting);
      continue;
    }
    const auto renamed = new_names_.find(setting.name);
    const bool is_translated = old_names == OldNames::translated && renamed != new_names_.end();
    const std::string& name = is_translated ? renamed->second : setting.name;
    const std::string value = old_names == OldNames::translated ? todays_value(name, setting.value) : setting.value;
    refuse_former(name, value, origin);
    const bool is_repeatable = section_holding(name, origin).values().at(key_of(name)).spec.type == KeyType::texts;
    set(name, value, is_repeatable ? first_origins.try_emplace(name, origin).first->second : origin,
        old_names == OldNames::refused ? Author::user : Author::program);
  }
  // Last, because the new key can be there, too, with the value that it had beside the former setting.
  for (const auto& [name, text_before, origin] : former_settings) {
    for (const Replacement& replacement : replacements_of(name, text_before)) {
      if (!was_read(*replacement.former)) continue;
      const std::string value = translated(replacement, text_before);
      if (!value.empty()) set(replacement.key->name, value, origin);
    }
  }
}

}  // namespace lockstep::config
