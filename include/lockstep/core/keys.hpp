// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

// Builders of configuration keys, one for each type of value.
namespace lockstep::keys {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// A whole number in [min, max].
inline KeySpec integer(std::string name, std::string default_value, std::string help, double min = -kUnlimited,
                       double max = kUnlimited) {
  return {.name = std::move(name),
          .type = KeyType::integer,
          .default_value = std::move(default_value),
          .help = std::move(help),
          .min = min,
          .max = max};
}

/// A number in [min, max].
inline KeySpec real(std::string name, std::string default_value, std::string help, double min = -kUnlimited,
                    double max = kUnlimited) {
  return {.name = std::move(name),
          .type = KeyType::real,
          .default_value = std::move(default_value),
          .help = std::move(help),
          .min = min,
          .max = max};
}

/// A number in (min, max].
inline KeySpec real_above(std::string name, double min_exclusive, double max, std::string default_value,
                          std::string help) {
  KeySpec key = real(std::move(name), std::move(default_value), std::move(help), min_exclusive, max);
  key.min_is_exclusive = true;
  return key;
}

inline KeySpec text(std::string name, std::string default_value, std::string help) {
  return {.name = std::move(name),
          .type = KeyType::text,
          .default_value = std::move(default_value),
          .help = std::move(help)};
}

/// A text that may be given several times.
inline KeySpec texts(std::string name, std::string default_value, std::string help) {
  return {.name = std::move(name),
          .type = KeyType::texts,
          .default_value = std::move(default_value),
          .help = std::move(help)};
}

/// true or false.
inline KeySpec boolean(std::string name, std::string default_value, std::string help) {
  return {.name = std::move(name),
          .type = KeyType::boolean,
          .default_value = std::move(default_value),
          .help = std::move(help)};
}

/// One of `choices`.
inline KeySpec choice(std::string name, std::string default_value, std::string help, std::vector<std::string> choices) {
  return {.name = std::move(name),
          .type = KeyType::choice,
          .default_value = std::move(default_value),
          .help = std::move(help),
          .choices = std::move(choices)};
}

}  // namespace lockstep::keys
