// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include "engine/loaded_model.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/print_result.hpp"
#include "trainer/predict/predictor.hpp"
#include "trainer/predict/weights_request.hpp"

namespace lockstep::trainer {

namespace {

/// Adapts the data of a run to predictions: other data than those of the run are predicted as a whole, and a sample is
/// never replaced by another one.
void adapt_data(WeightsRequest& request) {
  config::Config& config = request.config;
  const Section& data = config.section("data");
  const auto is_of_run = [&](const std::string& key) {
    return !request.checkpoint.empty() && data.origin(key).starts_with(request.checkpoint);
  };
  const auto is_chosen = [&](const std::string& key) { return !data.is_default(key) && !is_of_run(key); };
  if (is_chosen("path")) {
    for (const std::string key : {"val_path", "exclude", "root"}) {
      if (data.has(key) && is_of_run(key)) config.set("data." + key, "", "derived");
    }
    const bool takes_all = config.section("predict").text("split") == "auto" && !is_chosen("val_fraction");
    if (takes_all) config.set("data.val_fraction", "0", "derived");
  }
  const bool has_no_targets = data.has("unlabelled") && is_chosen("unlabelled") && data.boolean("unlabelled");
  if (has_no_targets && data.has("target") && is_of_run("target")) config.set("data.target", "class", "derived");
  if (data.text("on_error") == "replace" && is_chosen("on_error")) {
    throw ConfigError(data.cite("on_error") +
                      ": predictions of a replaced image would have the name of another one; use data.exclude");
  }
  config.set("data.on_error", "stop", "derived");
}

}  // namespace

ExitCode predict(const CommandJob& job, const config::Invocation& invocation) {
  WeightsRequest request = weights_request(job, invocation);
  PredictSettings settings;
  std::string split;
  engine::EvalSettings eval;
  job.world.all_or_throw([&] {
    adapt_data(request);
    settings = PredictSettings::from(request.config.section("predict"));
    eval = engine::EvalSettings::from(request.config.section("eval"));
    split = request.config.section("predict").text("split");
  });
  require_writable(job.world, settings);
  const Sections& sections = request.config.sections();
  engine::LoadedModel loaded = engine::load_model(job.world, sections, job.registry, request.checkpoint,
                                                  engine::Purpose::prediction, split == "auto" ? "" : split);
  const data::Dataset* dataset = nullptr;
  job.world.all_or_throw([&] { dataset = &predicted_split(loaded.splits, sections.at("predict"), eval.split); });
  eval.limits.loader_threads = loaded.resources.loader_threads;
  const std::int64_t count = write_predictions(job.world, loaded, *dataset, eval.limits, settings);
  print_result(job.world, settings.out.value + ": " + std::to_string(count) +
                              (count == 1 ? " sample, " : " samples, ") + weights_text(loaded));
  return ExitCode::done;
}

}  // namespace lockstep::trainer
