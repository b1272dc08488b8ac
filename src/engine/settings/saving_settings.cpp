// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/saving_settings.hpp"

#include <lockstep/engine/hook.hpp>

namespace lockstep::engine {

KeySpecs SavingSettings::keys() {
  return keys::titled(
      "Saving and keeping checkpoints",
      {
          keys::integer("ckpt.every_steps", "0", "Steps between checkpoints. 0 = disabled", 0, kMaxSteps),
          keys::integer("ckpt.every_epochs", "0", "Epochs between checkpoints. 0 = disabled", 0, kMaxSteps),
          keys::real("ckpt.every_secs", "900",
                     "Seconds between checkpoints, measured by the clock of rank 0. 0 = disabled", 0),
          keys::integer("ckpt.begin", "0",
                        "First step at which checkpoints are saved. The end of the run is always saved", 0, kMaxSteps),
          keys::boolean(
              "ckpt.save_optimizer", "true",
              "Save the state of the optimizer. If false, checkpoints are smaller, and a run resumes from them "
              "only with resume.reset=optim"),
          keys::boolean(
              "ckpt.save_schedule", "true",
              "Save the rules of the schedule and their state. If false, a resumed run uses the configured rules "
              "from their initial state"),
          keys::text(
              "ckpt.local_dir", "",
              "Folder on a fast local disk of rank 0. Checkpoints are first written there and then copied to the "
              "run's folder while training continues. Empty = disabled"),
          keys::boolean(
              "ckpt.async", "true",
              "Write checkpoints while training continues. Requires memory for an additional copy of the state"),
          keys::choice(
              "ckpt.mode", "replicated",
              "Layout of a checkpoint. replicated = a folder with one file; sharded = a folder with one file per "
              "writer; single = one file without a folder",
              {"replicated", "sharded", "single"}),
          keys::integer("ckpt.writers", "0", "Number of ranks that write a sharded checkpoint. 0 = one per host", 0,
                        1 << 20),
          keys::integer("ckpt.keep_last", "3", "Number of latest checkpoints to keep", 1, kMaxSteps),
          keys::integer("ckpt.keep_every", "0",
                        "Checkpoints at multiples of this number of steps are never deleted. 0 = disabled", 0,
                        kMaxSteps),
          keys::real("ckpt.keep_age", "0",
                     "Checkpoints younger than this number of hours are not deleted. 0 = disabled", 0),
          keys::integer("ckpt.keep_best", "1",
                        "Number of best checkpoints to keep, according to ckpt.best_metric. 0 = disabled", 0, 1000),
          keys::text("ckpt.best_metric", "auto",
                     "Evaluation metric that selects the best checkpoints. auto = selected by the kind of the task, "
                     "usually val/loss"),
          keys::choice("ckpt.best_rule", "auto",
                       "Whether less or greater values of ckpt.best_metric are better. auto = derived from the name of "
                       "the metric",
                       {"auto", "less", "greater"}),
          keys::integer("ckpt.verify_every", "10",
                        "The first and then every n-th checkpoint is read back and verified. 0 = disabled", 0,
                        kMaxSteps),
          keys::integer("ckpt.max_failures", "5", "Maximum number of consecutive failed saves before the run ends", 1,
                        kMaxSteps),
      });
}

SavingSettings SavingSettings::from(const Section& ckpt) {
  return {.every_steps = ckpt.integer("every_steps"),
          .every_epochs = ckpt.integer("every_epochs"),
          .every_seconds = ckpt.real("every_secs"),
          .begin = ckpt.integer("begin"),
          .has_optimizer = ckpt.boolean("save_optimizer"),
          .has_schedule = ckpt.boolean("save_schedule"),
          .local_dir = ckpt.text("local_dir"),
          .is_async = ckpt.boolean("async"),
          .mode = ckpt.text("mode"),
          .writers = static_cast<int>(ckpt.integer("writers")),
          .keep_last = ckpt.integer("keep_last"),
          .keep_every = ckpt.integer("keep_every"),
          .keep_age_hours = ckpt.real("keep_age"),
          .best = {.keep = ckpt.integer("keep_best"),
                   .metric = cited_text(ckpt, "best_metric"),
                   .rule = ckpt.text("best_rule")},
          .verify_every = ckpt.integer("verify_every"),
          .max_failures = ckpt.integer("max_failures")};
}

}  // namespace lockstep::engine
