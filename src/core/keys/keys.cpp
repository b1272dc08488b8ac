// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <utility>

namespace lockstep::keys {

KeySpec boolean(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::boolean, .default_value = default_value, .help = help};
}

KeySpec integer(const std::string& name, const std::string& default_value, const std::string& help, double min,
                double max) {
  return {.name = name, .type = KeyType::integer, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec real(const std::string& name, const std::string& default_value, const std::string& help, double min,
             double max) {
  return {.name = name, .type = KeyType::real, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec real_above(const std::string& name, double min_exclusive, double max, const std::string& default_value,
                   const std::string& help) {
  KeySpec key = real(name, default_value, help, min_exclusive, max);
  key.min_is_exclusive = true;
  return key;
}

KeySpec text(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::text, .default_value = default_value, .help = help};
}

KeySpec choice(const std::string& name, const std::string& default_value, const std::string& help,
               const std::vector<std::string>& choices) {
  return {.name = name, .type = KeyType::choice, .default_value = default_value, .help = help, .choices = choices};
}

KeySpec integers(const std::string& name, const std::string& default_value, const std::string& help, double min,
                 double max) {
  return {
      .name = name, .type = KeyType::integers, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec reals(const std::string& name, const std::string& default_value, const std::string& help, double min,
              double max) {
  return {.name = name, .type = KeyType::reals, .default_value = default_value, .help = help, .min = min, .max = max};
}

KeySpec texts(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::texts, .default_value = default_value, .help = help};
}

KeySpec renamed(KeySpec key, const std::string& old_name) {
  key.old_names.push_back(old_name);
  return key;
}

KeySpecs titled(const std::string& section_title, KeySpecs keys) {
  for (KeySpec& key : keys) key.section_title = section_title;
  return keys;
}

KeySpec replacing(KeySpec key, FormerSetting former) {
  key.replaces.push_back(std::move(former));
  return key;
}

}  // namespace lockstep::keys
