// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/saving_settings.hpp"

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

namespace lockstep::engine {

namespace {

KeySpecs when_keys() {
  return {
      keys::integer("ckpt.every_steps", "0", "steps between checkpoints; 0: off", 0, kMaxSteps),
      keys::integer("ckpt.every_epochs", "0", "epochs between checkpoints; 0: off", 0, kMaxSteps),
      keys::real("ckpt.every_secs", "900", "seconds between checkpoints, by the clock of rank 0; 0: off", 0),
      keys::boolean("ckpt.async", "true",
                    "write checkpoints while training goes on; takes memory for one more copy of the state"),
      keys::choice("ckpt.mode", "replicated",
                   "replicated: one file in a folder; sharded: a file of each writer; single: a file without a folder",
                   {"replicated", "sharded", "single"}),
      keys::integer("ckpt.writers", "0", "ranks that write a sharded checkpoint; 0: one for each host", 0, 1 << 20),
  };
}

KeySpecs which_keys() {
  return {
      keys::integer("ckpt.keep_last", "3", "newest checkpoints to keep", 1, kMaxSteps),
      keys::integer("ckpt.keep_every", "0", "checkpoints whose step is a multiple of this are kept for ever; 0: none",
                    0, kMaxSteps),
      keys::integer("ckpt.keep_best", "1",
                    "checkpoints of the steps with the best evaluations, which are saved and kept; 0: none", 0, 1000),
      keys::text("ckpt.best_metric", "auto",
                 "metric of the evaluation that tells which are best; auto: as the kind of the task suggests, mostly "
                 "val/loss"),
      keys::choice("ckpt.best_rule", "auto",
                   "which of its values are better: less, greater, or auto: as its name tells",
                   {"auto", "less", "greater"}),
      keys::integer("ckpt.verify_every", "10", "the first save and every such one is read back and checked; 0: none", 0,
                    kMaxSteps),
      keys::integer("ckpt.max_failures", "5", "failed saves in a row after which the run ends", 1, kMaxSteps),
  };
}

}  // namespace

KeySpecs SavingSettings::keys() {
  KeySpecs keys = when_keys();
  for (KeySpec& key : which_keys()) keys.push_back(std::move(key));
  return keys;
}

SavingSettings SavingSettings::from(const Section& ckpt) {
  return {.every_steps = ckpt.integer("every_steps"),
          .every_epochs = ckpt.integer("every_epochs"),
          .every_seconds = ckpt.real("every_secs"),
          .is_async = ckpt.boolean("async"),
          .mode = ckpt.text("mode"),
          .writers = static_cast<int>(ckpt.integer("writers")),
          .keep_last = ckpt.integer("keep_last"),
          .keep_every = ckpt.integer("keep_every"),
          .best = {.keep = ckpt.integer("keep_best"),
                   .metric = cited_text(ckpt, "best_metric"),
                   .rule = ckpt.text("best_rule")},
          .verify_every = ckpt.integer("verify_every"),
          .max_failures = ckpt.integer("max_failures")};
}

}  // namespace lockstep::engine
