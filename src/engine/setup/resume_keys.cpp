// SPDX-License-Identifier: BSD-3-Clause
#include "setup/resume_keys.hpp"

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/progress.hpp>

namespace lockstep::engine {

namespace {

KeySpecs init_keys() {
  return {
      keys::text("init.from", "",
                 "file to take initial parameters from, when nothing is resumed: a checkpoint, safetensors, .pt, .npz "
                 "or .h5"),
      weights_key("init.weights", "which weights of a checkpoint init.from takes"),
      keys::boolean("init.partial", "false", "take what fits by name and shape, and leave the others as they are"),
      keys::texts("init.rename", "", "FROM=TO: names in that file that begin with FROM begin with TO here"),
  };
}

KeySpecs resume_section_keys() {
  return {
      keys::integer("resume.max_fallback", "3", "older checkpoints to try when the newest cannot be read", 0,
                    kMaxSteps),
      keys::integer("resume.max_starts", "3",
                    "starts of a requeued job from the same step after which it is given up; 0: it is never given up",
                    0, 1e6),
      keys::boolean("resume.allow_fresh", "false", "start afresh when there are checkpoints, but none can be read"),
      keys::boolean("resume.allow_nonfinite", "false", "go on from parameters that hold NaN or infinity"),
      keys::boolean("resume.fork", "false", "go on in a folder with checkpoints of another run, which are set aside"),
      keys::choice("resume.schedule", "config",
                   "which holds where sched.rule or the length of the run is not the checkpoint's: that of config, as "
                   "if it had from the first step, or that of checkpoint",
                   {"config", "checkpoint"}),
      keys::text("resume.partial", "",
                 "model: take the parameters and buffers that fit, and leave the others as they are"),
      keys::texts("resume.reset", "", "parts that begin anew instead: optim, sched, sampler, rng, ema"),
      keys::texts("resume.rename", "", "FROM=TO: stored parameter names that begin with FROM begin with TO here"),
  };
}

}  // namespace

KeySpecs resume_keys() {
  KeySpecs keys = {
      keys::text("resume", "none",
                 "none; auto: from the newest checkpoint of run.dir if there is one; must: from it; or a step; or a "
                 "path"),
  };
  for (const KeySpecs& more : {init_keys(), resume_section_keys()}) keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

}  // namespace lockstep::engine
