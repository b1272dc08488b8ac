// SPDX-License-Identifier: BSD-3-Clause
#include "rows.hpp"

namespace lockstep::engine {

namespace {

KeySpecs standard_keys() {
  return {{.name = "train.manual_reduction",
           .type = KeyType::boolean,
           .default_value = "false",
           .help = "standard: gradients are averaged in one go after backward, and buffers taken from rank 0 before "
                   "forward, instead of by the wrapper's reducer"}};
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

}  // namespace lockstep::engine
