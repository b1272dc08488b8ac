// SPDX-License-Identifier: BSD-3-Clause
// Boost reads each line by itself, behind its section's header: so the number of the line is known.
#include <lockstep/core/error.hpp>

#include <boost/program_options/option.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>

#include "config/config.hpp"
#include "core/text.hpp"

namespace lockstep::config {

namespace po = boost::program_options;

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
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // the mark that some editors put before UTF-8
  return text;
}

std::string without_comment(const std::string& line) { return trimmed(line.substr(0, line.find('#'))); }

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

/// The one `key = value` of a line, with the section in the key's name.
po::option parse_line(const std::string& section, const std::string& code, const std::string& origin) {
  static const po::options_description none;
  std::istringstream text(section.empty() ? code : "[" + section + "]\n" + code);
  try {
    po::option option = po::parse_config_file(text, none, true).options.at(0);
    if (!option.string_key.empty() && option.string_key.back() != '.') return option;
  } catch (const po::error&) {  // the sentence below says it better
  }
  throw ConfigError(origin + ": '" + code + "' is neither 'key = value' nor '[section]'");
}

}  // namespace

void Config::read_file(const std::string& path) { read_ini(read_text_file(path), path); }

void Config::read_ini(const std::string& text, const std::string& source, OldNames old_names) {
  std::istringstream lines(text);
  std::map<std::string, std::string> first_origins;  // one origin for all lines of a repeatable key
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
    const po::option option = parse_line(section, code, origin);
    const auto renamed = new_names_.find(option.string_key);
    const bool is_translated = old_names == OldNames::translated && renamed != new_names_.end();
    const std::string& name = is_translated ? renamed->second : option.string_key;
    const bool is_repeatable = section_holding(name, origin).values().at(key_of(name)).spec.type == KeyType::texts;
    set(name, option.value.at(0), is_repeatable ? first_origins.try_emplace(name, origin).first->second : origin);
  }
}

}  // namespace lockstep::config
