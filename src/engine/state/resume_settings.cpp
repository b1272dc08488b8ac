// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/resume_settings.hpp>

#include <map>
#include <sstream>

#include "engine/state/renames.hpp"

namespace lockstep::engine {

namespace {

/// "optim,rng" and "optim" followed by "rng" are the same.
std::vector<std::string> words_of(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    std::istringstream text(list);
    for (std::string word; std::getline(text, word, ',');) {
      std::erase(word, ' ');
      words.push_back(word);
    }
  }
  return words;
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
  for (const std::string& word : words_of(resume.texts("reset"))) {
    const auto part = parts.find(word);
    if (part == parts.end()) {
      throw ConfigError(resume.cite("reset") + ": '" + word +
                        "' is not known; it takes: optim, sched, sampler, rng, ema");
    }
    options.*part->second = true;
  }
}

KeySpec flag(const char* name, const char* help) {
  return {.name = name, .type = KeyType::boolean, .default_value = "false", .help = help};
}

}  // namespace

KeySpecs ResumeSettings::keys() {
  return {
      {.name = "resume",
       .type = KeyType::text,
       .default_value = "none",
       .help =
           "none; auto: from the newest checkpoint of run.dir if there is one; must: from it; or a step; or a path"},
      {.name = "resume.max_fallback",
       .type = KeyType::integer,
       .default_value = "3",
       .help = "older checkpoints to try when the newest cannot be read",
       .min = 0,
       .max = 1e12},
      {.name = "resume.max_starts",
       .type = KeyType::integer,
       .default_value = "3",
       .help = "starts of a requeued job from the same step after which it is given up; 0: it is never given up",
       .min = 0,
       .max = 1e6},
      flag("resume.allow_fresh", "start afresh when there are checkpoints, but none can be read"),
      flag("resume.allow_nonfinite", "go on from parameters that hold NaN or infinity"),
      flag("resume.fork", "go on in a folder with checkpoints of another run, which are set aside"),
      {.name = "resume.schedule",
       .type = KeyType::choice,
       .default_value = "config",
       .help = "which holds where sched.rule or the length of the run is not the checkpoint's: that of config, as if "
               "it had from the first step, or that of checkpoint",
       .choices = {"config", "checkpoint"}},
      {.name = "resume.partial",
       .type = KeyType::text,
       .default_value = "",
       .help = "model: take the parameters and buffers that fit, and leave the others as they are"},
      {.name = "resume.reset",
       .type = KeyType::texts,
       .default_value = "",
       .help = "parts that begin anew instead: optim, sched, sampler, rng, ema"},
      {.name = "resume.rename",
       .type = KeyType::texts,
       .default_value = "",
       .help = "FROM=TO: stored parameter names that begin with FROM begin with TO here"},
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
