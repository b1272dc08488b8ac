// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/resume_settings.hpp"

#include <lockstep/core/error.hpp>

#include <map>
#include <utility>

#include "core/text/parameter_names.hpp"
#include "core/text/text.hpp"

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
    throw ConfigError(resume.cite("partial") + ": '" + partial + "' is unknown; choose: model");
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
                        "' is unknown; choose one of: optim, sched, sampler, rng, ema");
    }
    options.*part->second = true;
  }
}

}  // namespace

Renames renames_of(const Section& section) { return parse_renames(section.texts("rename"), section.cite("rename")); }

KeySpecs ResumeSettings::keys() {
  return keys::titled(
      "Resuming from a checkpoint",
      {
          keys::text("resume", "none",
                     "Checkpoint from which the run resumes. none = start a new run; auto = the latest checkpoint in "
                     "run.dir, if "
                     "any; must = the latest checkpoint in run.dir, which must exist; or a step number, or a path"),
          keys::expert(keys::integer("resume.max_fallback", "3",
                                     "Number of older checkpoints to try if the latest one is damaged", 0, 1e12)),
          keys::expert(keys::integer("resume.max_starts", "3",
                                     "Maximum number of starts of a requeued job from the same step. 0 = unlimited", 0,
                                     1e6)),
          keys::expert(keys::boolean("resume.allow_fresh", "false",
                                     "Start a new run if there are checkpoints but none of them can be read")),
          keys::expert(
              keys::boolean("resume.allow_nonfinite", "false",
                            "Resume even if the parameters contain NaN or infinity, and save such parameters")),
          keys::boolean("resume.fork", "false",
                        "Resume in a folder that contains checkpoints of another run. These are renamed"),
          keys::choice(
              "resume.schedule", "config",
              "Schedule to use if section sched or the length of the run differs from the checkpoint. config = the "
              "configured schedule, as if it had been used from the first step; checkpoint = the schedule of the "
              "checkpoint",
              {"config", "checkpoint"}),
          keys::text("resume.partial", "",
                     "model = load the parameters and buffers that match; the others keep their initial values"),
          keys::texts("resume.reset", "", "Parts of the state that are not restored: optim, sched, sampler, rng, ema"),
          keys::expert(
              keys::texts("resume.rename", "",
                          "FROM=TO: replace the prefix FROM by TO in the parameter names of the checkpoint. re:FROM=TO "
                          "replaces every match of a regular expression; $1 in TO is a group. Rules apply one after "
                          "another")),
      });
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
                      ": checkpoint cannot be combined with resume.reset=sched, which restarts the "
                      "configured schedule");
  }
  settings.restore.renames = renames_of(resume);
  return settings;
}

}  // namespace lockstep::engine
