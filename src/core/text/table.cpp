// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include "core/text/former_options.hpp"

namespace lockstep {

namespace {

bool is_list(const KeySpec& spec) { return spec.type == KeyType::integers || spec.type == KeyType::reals; }

std::string with_commas(const KeySpec& spec, std::string list, const std::string& key, const std::string& place) {
  const std::string written = list;
  std::replace(list.begin(), list.end(), '/', ',');
  if (fault_in(spec, list).empty()) return list;
  std::string range = range_of(spec);
  const std::string commas = "commas";
  range.replace(range.rfind(commas), commas.size(), "slashes");
  throw ConfigError(place + ": " + key + ": '" + written + "' is not " + range);
}

}  // namespace

void add_reader(KeySpec& key, const std::string& choice, const std::string& default_value,
                const std::vector<std::string>& selectors) {
  key.readers.selectors = selectors;
  key.readers.defaults.emplace(choice, default_value);
  if (default_value != key.default_value) key.default_value = "auto";
}

void set_option(Section& options, const std::string& option, const std::string& place) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) throw ConfigError(place + ": '" + option + "' does not have the form key=value");
  const std::string key = trimmed(option.substr(0, equals));
  std::string value = trimmed(option.substr(equals + 1));
  refuse_former_option(options, key, value, place);
  const auto found = options.values().find(key);
  if (found != options.values().end()) {
    if (!options.is_default(key)) throw ConfigError(place + ": " + key + " is given twice");
    const KeySpec& spec = found->second.spec;
    if (is_list(spec)) value = with_commas(spec, value, key, place);
  }
  options.set(key, value, place);
}

}  // namespace lockstep
