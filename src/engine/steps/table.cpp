// SPDX-License-Identifier: BSD-3-Clause
#include "core/table.hpp"

#include <lockstep/core/keys.hpp>

#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

KeySpecs standard_keys() {
  return {keys::boolean("train.manual_reduction", "false",
                        "standard: gradients are averaged in one go after backward, and buffers taken from rank 0 "
                        "before forward, instead of by the wrapper's reducer")};
}

}  // namespace

const std::vector<StepRow>& builtin_steps() {
  static const std::vector<StepRow> rows = {
      {.name = "model",
       .help = "the wrapper's own: trains the losses whose names contain \"loss\"",
       .keys = {},
       .make = model_step},
      {.name = "simple",
       .help = "trains the sum of all that the model returns, in the type of the parameters",
       .keys = {},
       .make = simple_step},
      {.name = "amp", .help = "the same in the type of train.precision", .keys = {}, .make = amp_step},
      {.name = "standard",
       .help = "trains the loss called \"loss\", and times its sections",
       .keys = standard_keys(),
       .make = standard_step,
       .measures_sections = true},
  };
  return rows;
}

const StepRow& chosen_step(const Section& train, const std::vector<StepRow>& rows) {
  return find_row(rows, train.text("step"), train.cite("step"));
}

KeySpec step_key(const std::vector<StepRow>& rows) {
  std::string help = "what a step is";
  for (const StepRow& row : rows) help += "; " + row.name + ": " + row.help;
  return keys::text("train.step", "model", help);
}

}  // namespace lockstep::engine
