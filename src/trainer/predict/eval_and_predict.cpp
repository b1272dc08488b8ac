// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <nlohmann/json.hpp>

#include <iomanip>

#include "core/text/text_stream.hpp"
#include "engine/loaded_model.hpp"
#include "engine/settings/agreed.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/predict/predictor.hpp"

namespace lockstep::trainer {

namespace {

/// The configuration of `trainer eval` and `trainer predict`, and the checkpoint that --from names.
struct WeightsRequest {
  config::Config config;        ///< that of the run first, then the files and keys of the command line
  std::string checkpoint = {};  ///< empty = init.from of the configuration
};

/// @throws ConfigError  neither --from nor init.from is given, or both are; on every rank. Collective.
WeightsRequest weights_request(const CommandJob& job, const config::Invocation& invocation) {
  const auto from = invocation.options.find("from");
  const bool has_run = from != invocation.options.end();
  job.world.all_or_throw([&] {
    const Section& init = invocation.config.section("init");
    if (has_run && !init.text("from").empty()) {
      throw ConfigError("command line: --from and " + init.cite("from") + " both name weights; remove one of them");
    }
    if (!has_run && init.text("from").empty()) {
      throw ConfigError("command line: " + invocation.command +
                        " needs --from PATH (folder of a run, or a checkpoint) or --init.from=FILE");
    }
  });
  if (!has_run) return {.config = invocation.config};
  const engine::StoredConfig stored = engine::stored_config(job.world, from->second);
  config::Invocation settled = engine::agreed(job.world, [&] {
    config::Invocation parsed = parse_arguments(job, {{stored.checkpoint, stored.config_ini}});
    config::Config& config = parsed.config;
    if (!config.section("data").origin("augmentation").starts_with(stored.checkpoint)) expand_augmentation(config);
    keep_former_val_transform(config, job.registry.transforms, stored.checkpoint);
    config.require_read();
    return parsed;
  });
  return {.config = std::move(settled.config), .checkpoint = stored.checkpoint};
}

std::string result_line(const engine::Evaluation& result, const engine::LoadedModel& loaded) {
  TextWriter text;
  text << "step " << result.step << std::setprecision(6);
  for (const auto& [name, number] : result.values) text << " val/" << name << " " << number;
  text << " val/count " << result.count;
  for (const auto& [name, number] : result.numbers) text << " val/" << name << " " << number;
  text << " from " << loaded.source << (result.is_average ? ", averaged weights" : "");
  return text.str();
}

/// NaN and infinity, which JSON does not have, are null.
std::string result_json(const engine::Evaluation& result, const engine::LoadedModel& loaded, const std::string& split) {
  nlohmann::ordered_json json = {
      {"from", loaded.source}, {"step", result.step},   {"weights", result.is_average ? "average" : "trained"},
      {"split", split},        {"count", result.count}, {"metrics", nlohmann::ordered_json::object()}};
  for (const auto& [name, number] : result.values) json["metrics"][name] = number;
  for (const auto& [name, number] : result.numbers) json["metrics"][name] = number;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

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
  const bool has_no_targets = data.has("unlabeled") && is_chosen("unlabeled") && data.boolean("unlabeled");
  if (has_no_targets && data.has("target") && is_of_run("target")) config.set("data.target", "class", "derived");
  if (data.text("on_error") == "replace" && is_chosen("on_error")) {
    throw ConfigError(data.cite("on_error") +
                      ": predictions of a replaced image would have the name of another one; use data.exclude");
  }
  config.set("data.on_error", "stop", "derived");
}

/// The part of the data that predict.split names; for auto that of eval.split, or else the training split.
/// @throws ConfigError  the source does not have this part
const data::Dataset& predicted_split(const data::Splits& splits, const Cited<std::string>& wanted,
                                     const Cited<std::string>& eval_split) {
  if (wanted.value != "auto") return engine::split_of(splits, wanted);
  const bool is_missing = (eval_split.value == "val" && !splits.val) || (eval_split.value == "test" && !splits.test);
  return is_missing ? *splits.train : engine::split_of(splits, eval_split);
}

}  // namespace

ExitCode evaluate(const CommandJob& job, const config::Invocation& invocation) {
  const bool is_json = invocation.options.contains("json");
  if (is_json) {  // nothing else on standard output
    log::configure({.rank = job.world.rank(), .world_size = job.world.size(), .console_level = log::Level::warning});
  }
  const WeightsRequest request = weights_request(job, invocation);
  const Sections& sections = request.config.sections();
  const auto wanted = invocation.options.find("predictions");
  PredictSettings predict;
  if (wanted != invocation.options.end()) {
    job.world.all_or_throw([&] { predict = PredictSettings::from(sections.at("predict")); });
    predict.out = {wanted->second, "command line: --predictions"};
    require_writable(job.world, predict);
  }
  engine::LoadedModel loaded = engine::load_model(job.world, sections, job.registry, request.checkpoint);
  const engine::Evaluation result = engine::evaluate_loaded(loaded, sections, job.registry);
  const engine::EvalSettings eval = engine::EvalSettings::from(sections.at("eval"));
  print_result(job.world, is_json ? result_json(result, loaded, eval.split.value) : result_line(result, loaded));
  if (wanted == invocation.options.end()) return ExitCode::done;
  engine::EvaluationLimits limits = eval.limits;
  limits.loader_threads = loaded.resources.loader_threads;
  write_predictions(job.world, loaded, engine::split_of(loaded.splits, eval.split), limits, predict);
  return ExitCode::done;
}

ExitCode predict(const CommandJob& job, const config::Invocation& invocation) {
  WeightsRequest request = weights_request(job, invocation);
  PredictSettings settings;
  engine::EvalSettings eval;
  job.world.all_or_throw([&] {
    adapt_data(request);
    settings = PredictSettings::from(request.config.section("predict"));
    eval = engine::EvalSettings::from(request.config.section("eval"));
  });
  require_writable(job.world, settings);
  const Sections& sections = request.config.sections();
  const std::string& split = settings.split.value;
  engine::LoadedModel loaded = engine::load_model(job.world, sections, job.registry, request.checkpoint,
                                                  engine::Purpose::prediction, split == "auto" ? "" : split);
  const data::Dataset* dataset = nullptr;
  job.world.all_or_throw([&] { dataset = &predicted_split(loaded.splits, settings.split, eval.split); });
  eval.limits.loader_threads = loaded.resources.loader_threads;
  const std::int64_t count = write_predictions(job.world, loaded, *dataset, eval.limits, settings);
  print_result(job.world, settings.out.value + ": " + std::to_string(count) +
                              (count == 1 ? " sample, " : " samples, ") + weights_text(loaded));
  return ExitCode::done;
}

}  // namespace lockstep::trainer
