// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/saving_settings.hpp"

#include <lockstep/engine/hook.hpp>

#include "core/text/better.hpp"
#include "core/text/parse_value.hpp"

namespace lockstep::engine {

namespace {

const std::string kDefaultSaves = "15min";

/// Former keys had each unit for itself. The others keep their values, that of seconds its default.
/// @param set  sets the number of a unit
template <class Set>
FormerSetting former_unit(const std::string& key, const Set& set) {
  const auto translate = [set](const std::string& number, const std::string& current) -> std::string {
    Repetition repetition = Every::parse(current.empty() ? kDefaultSaves : current, "ckpt.every").first();
    return set(repetition, number) ? Every(repetition).text() : "";
  };
  return {.key = key, .translate = translate, .hint = "see --help=ckpt"};
}

KeySpec ckpt_every_key() {
  const auto set_count = [](std::int64_t Repetition::*unit) {
    return [unit](Repetition& repetition, const std::string& number) {
      const auto count = parse_integer(number);
      if (count) repetition.*unit = *count;
      return count.has_value();
    };
  };
  const auto set_seconds = [](Repetition& repetition, const std::string& number) {
    const auto seconds = parse_real(number);
    if (seconds) repetition.seconds = *seconds;
    return seconds.has_value();
  };
  KeySpec key = keys::text("ckpt.every", kDefaultSaves,
                           "Time between checkpoints: 500 (steps), 2epochs, 15min (by the clock of rank 0), end or "
                           "never; joined by +, and with changes, such as 500 then 100@10000. The end of the run is "
                           "always saved");
  key = keys::replacing(key, former_unit("ckpt.every_steps", set_count(&Repetition::steps)));
  key = keys::replacing(key, former_unit("ckpt.every_epochs", set_count(&Repetition::epochs)));
  return keys::replacing(key, former_unit("ckpt.every_secs", set_seconds));
}

std::string layout_of_mode(const std::string& mode, const std::string&) {
  if (mode == "replicated") return "folder";
  if (mode == "sharded") return "shards";
  return mode == "single" ? "file" : "";
}

KeySpec layout_key() {
  return keys::replacing(
      keys::choice("ckpt.layout", "folder",
                   "Layout of a checkpoint. folder = a folder with one file; shards = a folder with one file per "
                   "writer; file = one file without a folder",
                   {"folder", "shards", "file"}),
      {.key = "ckpt.mode", .translate = layout_of_mode, .hint = "use folder, shards or file"});
}

}  // namespace

KeySpecs SavingSettings::keys() {
  return keys::titled(
      "Saving and keeping checkpoints",
      {
          ckpt_every_key(),
          keys::expert(keys::text("ckpt.begin", "0",
                                  "First step or epoch at which checkpoints are saved: 100 or 2epochs. The end of the "
                                  "run is always saved")),
          keys::boolean(
              "ckpt.save_optimizer", "true",
              "Save the state of the optimizer. If false, checkpoints are smaller, and a run resumes from them "
              "only with resume.reset=optim"),
          keys::expert(keys::boolean(
              "ckpt.save_schedule", "true",
              "Save the rules of the schedule and their state. If false, a resumed run uses the configured rules "
              "from their initial state")),
          keys::read_by(keys::boolean("ckpt.buffer", "false",
                                      "Save the samples that a program has pushed, so that a resumed run draws the "
                                      "same ones"),
                        "data.name", {"arrays"}),
          keys::expert(keys::text(
              "ckpt.local_dir", "",
              "Folder on a fast local disk of rank 0. Checkpoints are first written there and then copied to the "
              "run's folder while training continues. Empty = disabled")),
          keys::text("ckpt.memory_every", "0",
                     "Steps between copies of the state in the memory of the first host (/dev/shm), from which a run "
                     "resumes after a failure. auto = so many that copies take 1 % of the time; 0 = disabled"),
          keys::boolean("ckpt.partner", "false",
                        "Send the copies of ckpt.memory_every to the memory of the second host, too, in case that the "
                        "first host fails"),
          keys::expert(keys::boolean(
              "ckpt.async", "true",
              "Write checkpoints while training continues. Requires memory for an additional copy of the state")),
          layout_key(),
          keys::read_by(keys::integer("ckpt.writers", "0", "Number of ranks that write a shard each. 0 = one per host",
                                      0, 1 << 20),
                        "ckpt.layout", {"shards"}),
          keys::integer("ckpt.keep_last", "3", "Number of latest checkpoints to keep", 1, kMaxSteps),
          keys::integer("ckpt.keep_every", "0",
                        "Checkpoints at multiples of this number of steps are never deleted. 0 = disabled", 0,
                        kMaxSteps),
          keys::expert(keys::renamed(
              keys::real("ckpt.keep_age_h", "0",
                         "Checkpoints younger than this number of hours are not deleted. 0 = disabled", 0),
              "ckpt.keep_age")),
          keys::integer("ckpt.keep_best", "1",
                        "Number of best checkpoints to keep, according to ckpt.metric. 0 = disabled", 0, 1000),
          keys::renamed(
              keys::text("ckpt.metric", "auto",
                         "Evaluation metric that selects the best checkpoints. auto = selected by the kind of the "
                         "task, usually val/loss"),
              "ckpt.best_metric"),
          better_key("ckpt.better", "ckpt.best_rule"),
          keys::expert(keys::integer("ckpt.verify_every", "10",
                                     "The first and then every n-th checkpoint is read back and verified. 0 = disabled",
                                     0, kMaxSteps)),
          keys::expert(keys::integer("ckpt.max_failures", "5",
                                     "Maximum number of consecutive failed saves before the run ends", 1, kMaxSteps)),
      });
}

namespace {

std::int64_t memory_every_in(const Section& ckpt) {
  const std::string& text = ckpt.text("memory_every");
  if (text == "auto") return SavingSettings::kAutomatic;
  const auto steps = parse_integer(text);
  constexpr auto kLargest = static_cast<std::int64_t>(kMaxSteps);
  if (steps && *steps >= 0 && *steps <= kLargest) return *steps;
  throw ConfigError(ckpt.cite("memory_every") + ": '" + text + "' is neither auto nor a number of steps from 0 to " +
                    std::to_string(kLargest));
}

}  // namespace

SavingSettings SavingSettings::from(const Section& ckpt) {
  return {
      .every = Every::parse(ckpt.text("every"), ckpt.cite("every")),
      .begin = Begin::parse(ckpt.text("begin"), ckpt.cite("begin")),
      .has_optimizer = ckpt.boolean("save_optimizer"),
      .has_schedule = ckpt.boolean("save_schedule"),
      .local_dir = ckpt.text("local_dir"),
      .is_async = ckpt.boolean("async"),
      .layout = ckpt.text("layout"),
      .writers = static_cast<int>(ckpt.integer("writers")),
      .memory_every = memory_every_in(ckpt),
      .has_partner = ckpt.boolean("partner"),
      .keep_last = ckpt.integer("keep_last"),
      .keep_every = ckpt.integer("keep_every"),
      .keep_age_hours = ckpt.real("keep_age_h"),
      .best = {.keep = ckpt.integer("keep_best"), .metric = cited_text(ckpt, "metric"), .better = ckpt.text("better")},
      .verify_every = ckpt.integer("verify_every"),
      .max_failures = ckpt.integer("max_failures")};
}

}  // namespace lockstep::engine
