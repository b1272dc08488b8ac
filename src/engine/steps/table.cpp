// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <stdexcept>
#include <utility>
#include <variant>

#include "engine/steps/micro_batch_events.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

using models::LossSum;

TrainStep simple_step(const Section& train) {
  const std::string& precision = train.text("precision");
  if (precision == "bf16" || precision == "fp16") {
    throw ConfigError(train.cite("precision") +
                      ": train.step_kind=simple computes in the type of the parameters; use train.step_kind=amp");
  }
  return StepOptions{.sum = LossSum::all, .requires_training_mode = true};
}

TrainStep standard_step(const Section& train) {
  return StepOptions{
      .sum = LossSum::main, .reduces_manually = train.boolean("manual_reduction"), .requires_training_mode = true};
}

KeySpecs standard_keys() {
  return {keys::boolean("train.manual_reduction", "false",
                        "standard: average all gradients after backward and broadcast the buffers of rank 0 before "
                        "forward, without the reducer of the wrapper")};
}

bool is_empty(const TrainStep& step) {
  const auto* const manual = std::get_if<ManualStep>(&step);
  const auto* const losses = std::get_if<LossStep>(&step);
  return (manual != nullptr && !*manual) || (losses != nullptr && !*losses);
}

StepOptions options_of(TrainStep step) {
  if (auto* const options = std::get_if<StepOptions>(&step)) return std::move(*options);
  return {.losses = std::get<LossStep>(std::move(step)), .requires_training_mode = true};
}

/// A function of a program may decide on the host what it computes, and hosts time sections: neither is captured.
bool is_capturable(const StepOptions& options, const StepRow& row) {
  return !options.losses && !options.reduces_manually && !row.measures_sections;
}

void require_not_over(const StepContext& step) {
  if (step.where < 1) return;
  throw std::logic_error(
      "a step after the end of the training (progress is 1): the sampler and the run were resumed at different "
      "positions; resume with the same global batch size and length of the run");
}

/// Runs the step of the wrapper with these options, notifies the hooks, and times the sections.
/// @throws std::logic_error  the training is over
parallel::StepResult run_step(StepContext& step, const StepOptions& options) {
  require_not_over(step);
  MicroBatchEvents events({.given = &step.batch, .model = &step.wrapper.model()}, step.notify, &step.optimizer,
                          step.perf);
  events.reads_gradients = step.reads_gradients;
  events.reads_late = step.reads_late;
  return step.wrapper.train_step(step.batch, step.optimizer, step.weights, options, &events);
}

}  // namespace

const std::vector<StepRow>& builtin_steps() {
  static const std::vector<StepRow> rows = {
      {.name = "model",
       .help = "minimizes the sum of the losses with names that contain \"loss\"",
       .keys = {},
       .make = [](const Section&) { return StepOptions{.sum = LossSum::named}; }},
      {.name = "simple",
       .help = "minimizes the sum of all values that the model returns, in the type of the parameters",
       .keys = {},
       .make = simple_step},
      {.name = "amp",
       .help = "minimizes the sum of all values that the model returns, with mixed precision (train.precision)",
       .keys = {},
       .make = [](const Section&) { return StepOptions{.sum = LossSum::all, .requires_training_mode = true}; }},
      {.name = "standard",
       .help = "minimizes the loss named \"loss\" and measures the sections of the step",
       .keys = standard_keys(),
       .make = standard_step,
       .measures_sections = true},
  };
  return rows;
}

const StepRow& chosen_step(const Section& train, const std::vector<StepRow>& rows) {
  return find_row(rows, train.text("step_kind"), train.cite("step_kind"));
}

MadeStep make_step(const Section& train, const std::vector<StepRow>& rows) {
  const StepRow& row = chosen_step(train, rows);
  TrainStep step = row.make(train);
  if (is_empty(step)) throw ConfigError(train.cite("step_kind") + ": its function `make` returned nothing");
  if (auto* const manual = std::get_if<ManualStep>(&step)) {
    return {.run = std::move(*manual), .reads_late = row.reads_late};
  }
  MadeStep made{.run = {}, .reads_late = true};
  StepOptions options = options_of(std::move(step));
  if (is_capturable(options, row)) made.captured = options;
  made.run = [options = std::move(options)](StepContext& context) { return run_step(context, options); };
  return made;
}

KeySpec step_key(const std::vector<StepRow>& rows) {
  std::string help = "Action of a training step";
  for (const StepRow& row : rows) help += "; " + row.name + ": " + row.help;
  return keys::expert(keys::renamed(keys::text("train.step_kind", "model", help), "train.step"));
}

}  // namespace lockstep::engine
