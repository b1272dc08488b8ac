// SPDX-License-Identifier: BSD-3-Clause
#include "rows.hpp"

namespace lockstep::engine {

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
  };
  return rows;
}

}  // namespace lockstep::engine
