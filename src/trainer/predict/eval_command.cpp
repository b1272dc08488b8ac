// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <nlohmann/json.hpp>

#include <iomanip>

#include "core/text/text_stream.hpp"
#include "engine/loaded_model.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/print_result.hpp"
#include "trainer/predict/predictor.hpp"
#include "trainer/predict/weights_request.hpp"

namespace lockstep::trainer {

namespace {

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

}  // namespace lockstep::trainer
