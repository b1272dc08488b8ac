// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/resume_settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <map>
#include <utility>

#include "core/text.hpp"
#include "engine/state/renames.hpp"

namespace lockstep::engine {

namespace {

/// "optim,rng" and "optim" followed by "rng" are the same.
std::vector<std::string> parts_of(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    if (list.empty()) continue;
    for (std::string& part : split_list(list, ',')) parts.push_back(std::move(part));
  }
  return parts;
}

bool is_partial(const Section& resume) {
  const std::string& partial = resume.text("partial");
  if (!partial.empty() && partial != "model") {
    throw ConfigError(resume.cite("partial") + ": '" + partial + "' is not known; it takes: model");
  }
  return partial == "model";
}

void read_resets(const Section& resume, RestoreOptions& options) {
  static const std::map<std::string, bool RestoreOptions::*> parts = {{"optim", &RestoreOptions::resets_optim},
                                                                      {"sched", &RestoreOptions::resets_sched},
                                                                      {"sampler", &RestoreOptions::resets_sampler},
                                                                      {"rng", &RestoreOptions::resets_rng},
                                                                      {"ema", &RestoreOptions::resets_average}};
  for (const std::string& word : parts_of(resume.texts("reset"))) {
    const auto part = parts.find(word);
    if (part == parts.end()) {
      throw ConfigError(resume.cite("reset") + ": '" + word +
                        "' is not known; it takes: optim, sched, sampler, rng, ema");
    }
    options.*part->second = true;
  }
}

}  // namespace

KeySpecs ResumeSettings::keys() {
  return {
      keys::text(
          "resume", "none",
          "none; auto: from the newest checkpoint of run.dir if there is one; must: from it; or a step; or a path"),
      keys::integer("resume.max_fallback", "3", "older checkpoints to try when the newest cannot be read", 0, 1e12),
      keys::integer("resume.max_starts", "3",
                    "starts of a requeued job from the same step after which it is given up; 0: it is never given up",
                    0, 1e6),
      keys::boolean("resume.allow_fresh", "false", "start afresh when there are checkpoints, but none can be read"),
      keys::boolean("resume.allow_nonfinite", "false", "go on from parameters that hold NaN or infinity"),
      keys::boolean("resume.fork", "false", "go on in a folder with checkpoints of another run, which are set aside"),
      keys::choice(
          "resume.schedule", "config",
          "which holds where sched.rule or the length of the run is not the checkpoint's: that of config, as if "
          "it had from the first step, or that of checkpoint",
          {"config", "checkpoint"}),
      keys::text("resume.partial", "",
                 "model: take the parameters and buffers that fit, and leave the others as they are"),
      keys::texts("resume.reset", "", "parts that begin anew instead: optim, sched, sampler, rng, ema"),
      keys::texts("resume.rename", "", "FROM=TO: stored parameter names that begin with FROM begin with TO here"),
  };
}

ResumeSettings ResumeSettings::from(const Sections& sections) {
  const Section& resume = sections.at("resume");
  ResumeSettings settings{.source = sections.at("").text("resume"),
                          .max_fallback = resume.integer("max_fallback"),
                          .max_starts = resume.integer("max_starts"),
                          .allow_fresh = resume.boolean("allow_fresh"),
                          .allow_nonfinite = resume.boolean("allow_nonfinite"),
                          .fork = resume.boolean("fork"),
                          .schedule = resume.text("schedule"),
                          .restore = {.is_partial = is_partial(resume)}};
  read_resets(resume, settings.restore);
  if (settings.restore.resets_sched && settings.schedule == "checkpoint") {
    throw ConfigError(resume.cite("schedule") +
                      ": checkpoint has no place beside resume.reset=sched, which begins the "
                      "configured schedule anew");
  }
  settings.restore.renames = renames_of(resume);
  return settings;
}

}  // namespace lockstep::engine
