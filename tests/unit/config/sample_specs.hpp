// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <functional>
#include <string>
#include <vector>

#include "core/keys/command.hpp"

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
      {.name = "optim.steps",
       .type = KeyType::integer,
       .default_value = "3",
       .help = "",
       .min = 1,
       .section_title = "the optimizer and its settings"},
      {.name = "optim.group", .type = KeyType::texts, .default_value = "", .help = ""},
      {.name = "data.path", .type = KeyType::text, .default_value = "", .help = "folder of the data set."},
      {.name = "data.sizes", .type = KeyType::integers, .default_value = "1,2", .help = ""},
      {.name = "ddp.report", .type = KeyType::boolean, .default_value = "no", .help = ""},
  };
}

/// Commands with options and words of every kind.
inline std::vector<CommandSpec> sample_commands() {
  const CommandOption json = {.name = "json", .help = "Print JSON"};
  return {
      {.name = "train", .help = "Trains a model", .options = {{.name = "quiet", .help = "Print only warnings"}}},
      {.name = "eval",
       .help = "Evaluates a checkpoint",
       .options = {{.name = "from",
                    .value = "PATH",
                    .help = "Folder of a run",
                    .elsewhere = "see --init.from and --resume for training"},
                   json,
                   {.name = "predictions", .value = "FILE", .help = "Also write the predictions"}}},
      {.name = "predict",
       .help = "Writes predictions",
       .options = {{.name = "from", .value = "PATH", .help = "Folder of a run"}}},
      {.name = "export",
       .help = "Writes weights",
       .words = {"RUN"},
       .options = {{.name = "to", .value = "FILE", .help = "Output file", .is_required = true}}},
      {.name = "config",
       .help = "Prints all keys",
       .options = {{.name = "groups", .help = "Print the groups"}, {.name = "verbose", .help = "Also print more"}}},
      {.name = "schedule",
       .help = "Prints a schedule",
       .options = {{.name = "plot", .value = "FILE", .help = "Output SVG file"}}},
      {.name = "data", .help = "Describes the data set", .options = {json}},
      {.name = "report", .help = "Writes a report", .words = {"RUN"}},
      {.name = "compare",
       .help = "Compares two runs",
       .words = {"RUN", "another RUN"},
       .options = {{.name = "out", .value = "FILE", .help = "Output file"}}},
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
