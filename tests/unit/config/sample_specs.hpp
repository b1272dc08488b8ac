// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <functional>
#include <string>

namespace lockstep::config {

/// A few keys of every type.
inline KeySpecs sample_specs() {
  return {
      {.name = "resume", .type = KeyType::text, .default_value = "none", .help = "what to go on from"},
      {.name = "resume.verify",
       .type = KeyType::choice,
       .default_value = "full",
       .help = "",
       .choices = {"full", "none"}},
      {.name = "optim.lr",
       .type = KeyType::real,
       .default_value = "0.1",
       .help = "base learning rate",
       .min = 0,
       .min_is_exclusive = true},
      {.name = "optim.betas", .type = KeyType::reals, .default_value = "0.9, 0.99", .help = "", .min = 0, .max = 1},
      {.name = "optim.name", .type = KeyType::choice, .default_value = "sgd", .help = "", .choices = {"sgd", "adamw"}},
      {.name = "optim.steps", .type = KeyType::integer, .default_value = "3", .help = "", .min = 1},
      {.name = "optim.group", .type = KeyType::texts, .default_value = "", .help = ""},
      {.name = "data.path", .type = KeyType::text, .default_value = "", .help = "folder of the data set."},
      {.name = "data.sizes", .type = KeyType::integers, .default_value = "1,2", .help = ""},
      {.name = "ddp.report", .type = KeyType::boolean, .default_value = "no", .help = ""},
  };
}

/// The message of the ConfigError that `body` throws, or "".
inline std::string sentence_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::config
