// SPDX-License-Identifier: BSD-3-Clause
#include "engine/hooks/log_settings.hpp"

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

namespace lockstep::engine {

KeySpecs LogSettings::keys() {
  return {
      keys::integer("log.interval", "10", "steps between lines of the log and of metrics.jsonl", 1, kMaxSteps),
      keys::boolean("log.tensorboard", "true",
                    "write the numbers of metrics.jsonl to a TensorBoard event file in run.dir, too"),
      keys::integer(
          "log.pictures", "16",
          "samples of the validation split that report.html and TensorBoard show with the model's predictions; 0: none",
          0, 1000),
      keys::boolean("log.sections", "false",
                    "measure the sections of a step (reading, forward, loss, backward, update) in ms; "
                    "train.step=standard always does"),
  };
}

LogSettings LogSettings::from(const Section& log) {
  return {.interval = log.integer("interval"),
          .pictures = log.integer("pictures"),
          .times_sections = log.boolean("sections")};
}

}  // namespace lockstep::engine
