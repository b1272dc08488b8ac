// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <utility>
#include <variant>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

KeySpecs standard_keys() {
  return {keys::boolean("train.manual_reduction", "false",
                        "standard: average all gradients after backward and broadcast the buffers of rank 0 before "
                        "forward, without the reducer of the wrapper")};
}

}  // namespace

const std::vector<StepRow>& builtin_steps() {
  static const std::vector<StepRow> rows = {
      {.name = "model",
       .help = "minimizes the sum of the losses with names that contain \"loss\"",
       .keys = {},
       .make = model_step,
       .captured_losses = models::LossSum::named,
       .reads_late = true},
      {.name = "simple",
       .help = "minimizes the sum of all values that the model returns, in the type of the parameters",
       .keys = {},
       .make = simple_step,
       .captured_losses = models::LossSum::all,
       .reads_late = true},
      {.name = "amp",
       .help = "the same with mixed precision (train.precision)",
       .keys = {},
       .make = amp_step,
       .captured_losses = models::LossSum::all,
       .reads_late = true},
      {.name = "standard",
       .help = "minimizes the loss named \"loss\" and measures the sections of the step",
       .keys = standard_keys(),
       .make = standard_step,
       .measures_sections = true,
       .reads_late = true},
  };
  return rows;
}

const StepRow& chosen_step(const Section& train, const std::vector<StepRow>& rows) {
  return find_row(rows, train.text("step"), train.cite("step"));
}

MadeStep make_step(const Section& train, const std::vector<StepRow>& rows) {
  const StepRow& row = chosen_step(train, rows);
  TrainStep step = row.make(train);
  const bool is_there = std::visit([](const auto& function) { return bool(function); }, step);
  if (!is_there) throw ConfigError(train.cite("step") + ": its function `make` returned nothing");
  const bool reads_late = row.reads_late || std::holds_alternative<LossStep>(step);
  return {.run = completed(std::move(step)), .reads_late = reads_late};
}

KeySpec step_key(const std::vector<StepRow>& rows) {
  std::string help = "Action of a training step";
  for (const StepRow& row : rows) help += "; " + row.name + ": " + row.help;
  return keys::text("train.step", "model", help);
}

}  // namespace lockstep::engine
