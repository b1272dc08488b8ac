// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/page.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "core/text/duration.hpp"
#include "trainer/commands/table_text.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.2f} MB", bytes / 1e6);
  return fmt::format("{:.1f} kB", bytes / 1e3);
}

std::string bytes_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return seconds < 120 ? fmt::format("{:.2f} s", seconds) : clock_text(seconds);
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string counted(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Lines with a title in the first column.
class Lines {
 public:
  explicit Lines(const std::string& heading) : text_(heading + "\n") {}
  void add(const std::string& title, const std::string& line) { text_ += fmt::format("  {:<12} {}\n", title, line); }
  void add_table(const std::vector<std::vector<std::string>>& rows) {
    text_ += "    ";
    for (const char sign : table_text(rows)) text_ += sign == '\n' ? std::string("\n    ") : std::string(1, sign);
    text_ += "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string memory_title(const engine::HeldBytes& held) {
  return held.sharers == 1 ? "each rank has its own copy"
                           : fmt::format("{} ranks of a host share parameters, state and average", held.sharers);
}

void add_ranks(const engine::JobPlan& plan, Lines& lines) {
  lines.add("memory", memory_title(plan.ranks.front().held));
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "samples", "passes", "parameters", "gradients",
                                                 "optimizer", "average", "buffers", "batches", "per rank"}};
  for (const engine::PlannedRank& rank : plan.ranks) {
    const engine::HeldBytes& held = rank.held;
    std::vector<std::string> row = {std::to_string(rank.rank), std::to_string(rank.host), std::to_string(rank.samples),
                                    std::to_string(rank.micro_batches)};
    for (const std::int64_t bytes :
         {held.parameters, held.gradients, held.state, held.average, held.buffers, held.batches, held.per_rank()}) {
      row.push_back(bytes_text(bytes));
    }
    rows.push_back(std::move(row));
  }
  lines.add_table(rows);
}

void add_data(const engine::Workload& workload, const engine::JobShape& shape, Lines& lines) {
  const std::int64_t batch = workload.batch.global_batch_size.value;
  const std::int64_t samples = workload.steps_per_epoch * batch;
  lines.add("length", fmt::format("{} of {} samples; {} per epoch of {}", counted(workload.total_steps, "step"), batch,
                                  counted(workload.steps_per_epoch, "step"), counted(workload.samples, "sample")));
  std::string files = "samples have no files of their own";
  if (workload.files > 0) {
    const double share = static_cast<double>(samples) / static_cast<double>(workload.files);
    files = fmt::format("{} files opened, {}{} read", samples, workload.is_sampled ? "about " : "",
                        bytes_text(workload.file_bytes * share));
  }
  lines.add("data",
            fmt::format("per epoch {}; {} in batches, {} per rank", files, bytes_text(samples * workload.sample_bytes),
                        bytes_text(samples * workload.sample_bytes / shape.ranks)));
}

std::string computed_text(const PlanPage& page) {
  const engine::Workload& workload = page.workload;
  const engine::JobPlan& plan = page.plan;
  Lines lines("Computed");
  std::int64_t trained = 0;
  for (const parallel::ParameterSpec& parameter : workload.parameters) trained += parameter.count();
  lines.add("model", fmt::format("{} parameters, {} of them trained", workload.parameter_count, trained));
  const auto largest = std::ranges::max_element(plan.bucket_bytes);
  if (largest != plan.bucket_bytes.end()) {
    lines.add("gradients", fmt::format("{}, the largest has {}",
                                       counted(static_cast<std::int64_t>(plan.bucket_bytes.size()), "bucket"),
                                       bytes_text(*largest)));
  }
  if (workload.batch.lanes.value > 0) {
    lines.add("lanes", fmt::format("{}, of {} each", counted(workload.batch.lanes.value, "lane"),
                                   counted(plan.ranks.front().micro_batch_size, "sample")));
  }
  if (workload.stage > 0) {
    const int slices = workload.is_within_hosts ? plan.shape.ranks_of(0) : plan.shape.ranks;
    lines.add("shards",
              fmt::format("stage {}: {} of {}", workload.stage,
                          counted(static_cast<std::int64_t>(workload.units.size()), "unit"), counted(slices, "slice")));
  }
  add_data(workload, plan.shape, lines);
  add_ranks(plan, lines);
  lines.add("", fmt::format("a host of {} needs {}, without activations and libraries",
                            counted(plan.shape.ranks_of(0), "rank"), bytes_text(plan.host_bytes)));
  lines.add("checkpoint",
            fmt::format("{}: model {}, optimizer {}; written by {}, at most {} per rank and {} per host",
                        bytes_text(plan.checkpoint_bytes()), bytes_text(plan.model_bytes), bytes_text(plan.state_bytes),
                        counted(plan.writers, "rank"), bytes_text(plan.ranks.front().checkpoint_bytes),
                        bytes_text(plan.host_checkpoint_bytes)));
  for (const std::string& warning : plan.warnings) lines.add("warning", warning);
  for (const std::string& remark : workload.remarks) lines.add("remark", remark);
  return lines.text();
}

std::string measured_text(const engine::JobPlan& plan, const MeasuredHere& here) {
  Lines lines("Measured here");
  std::string phases;
  for (const auto& [name, seconds] : here.phases) {
    if (name != "train_step_total") phases += fmt::format(", {} {}", name, time_text(seconds));
  }
  lines.add("step", fmt::format("{} on {}{}", time_text(here.step_s), counted(here.ranks, "rank"), phases));
  lines.add("data", fmt::format("{} of a step is waiting for data", percent(here.data_s / here.step_s)));
  lines.add("activations", fmt::format("{} more memory in a step; a process has {} before training",
                                       bytes_text(here.activation_bytes), bytes_text(here.base_bytes)));
  const double needed = host_total_bytes(plan, here);
  std::string available;
  if (here.available_bytes > 0)
    available = fmt::format("; {} are available on this host", bytes_text(here.available_bytes));
  lines.add("memory", fmt::format("a host of {} of the job needs {} with activations and processes{}",
                                  counted(plan.shape.ranks_of(0), "rank"), bytes_text(needed), available));
  lines.add("overlap", here.overlaps ? "buckets are reduced during backward" : "buckets are reduced after backward");
  const auto link_text = [](const LinkSpeed& link) {
    return fmt::format("{:.1f} us and {:.2f} GB/s", link.latency_s * 1e6, link.bytes_per_s / 1e9);
  };
  lines.add("network", fmt::format("inside a host {} of memory, messages {}; between hosts {} (options)",
                                   fmt::format("{:.2f} GB/s", here.network.memory.bytes_per_s / 1e9),
                                   here.ranks > 1 ? link_text(here.network.inside) : "not measured on one rank",
                                   link_text(here.network.between)));
  for (const Check& check : here.checks) {
    lines.add("check", fmt::format("{}: predicted {}, measured {}: error {}", counted(check.ranks, "rank"),
                                   time_text(check.predicted_s), time_text(check.measured_s), percent(check.error())));
  }
  return lines.text();
}

std::string predicted_text(const PredictedRun& predicted, const engine::JobShape& shape) {
  Lines lines("Predicted");
  const auto bar = [&](double seconds) {
    return fmt::format("{} (from {} to {})", time_text(seconds), time_text(predicted.low(seconds)),
                       time_text(predicted.high(seconds)));
  };
  const PredictedStep& step = predicted.step;
  lines.add("step", bar(step.seconds()));
  lines.add("", fmt::format("compute {}, update {}, communication inside hosts {}, between hosts {}",
                            time_text(step.compute_s), time_text(step.update_s), time_text(step.inside_s),
                            time_text(step.between_s)));
  lines.add("speed", fmt::format("{:.0f} samples/s; {} of a step is computing", predicted.samples_per_s,
                                 percent(step.compute_s / step.seconds())));
  lines.add("run", fmt::format("{}, without evaluations and saves", bar(predicted.run_s())));
  if (predicted.limit_s) {
    const double steps = *predicted.limit_s / step.seconds();
    const bool ends = steps >= static_cast<double>(predicted.steps);
    lines.add("limit", ends ? fmt::format("the run ends before its limit of {}", time_text(*predicted.limit_s))
                            : fmt::format("the limit of {} ends it after {:.0f} of {} steps",
                                          time_text(*predicted.limit_s), steps, predicted.steps));
  }
  const double hours = predicted.hours();
  lines.add("cost", fmt::format("{:.3g} rank hours, {:.3g} host hours", hours * shape.ranks, hours * shape.hosts));
  if (predicted.save_s) lines.add("save", time_text(*predicted.save_s));
  return lines.text();
}

std::string reliability_text(const PlanPage& page) {
  const FailurePlan& failures = *page.failures;
  Lines lines("Reliability");
  lines.add("failures", fmt::format("one every {} in this job; {:.2f} expected in the run",
                                    time_text(failures.job_mtbf_s), failures.failures));
  lines.add("saves", fmt::format("best interval {} by Daly (2006), {} by Young (1974): --ckpt.every={:.0f}s",
                                 time_text(failures.daly_s), time_text(failures.young_s),
                                 std::max(1.0, std::round(failures.daly_s))));
  lines.add("time", fmt::format("{} with a save of {} and a restart of {}; {} of it is training",
                                time_text(failures.wall_s), time_text(page.failure_settings.save_s),
                                time_text(page.failure_settings.restart_s), percent(failures.effective)));
  return lines.text();
}

Json json_of(const engine::HeldBytes& held) {
  return {{"parameters", held.parameters}, {"gradients", held.gradients}, {"optimizer", held.state},
          {"average", held.average},       {"buffers", held.buffers},     {"batches", held.batches},
          {"sharers", held.sharers},       {"per_rank", held.per_rank()}};
}

Json computed_json(const PlanPage& page) {
  const engine::Workload& workload = page.workload;
  const engine::JobPlan& plan = page.plan;
  std::int64_t trained = 0;
  for (const parallel::ParameterSpec& parameter : workload.parameters) trained += parameter.count();
  Json ranks = Json::array();
  for (const engine::PlannedRank& rank : plan.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"samples", rank.samples},
                     {"micro_batches", rank.micro_batches},
                     {"micro_batch_size", rank.micro_batch_size},
                     {"updated_elements", rank.updated},
                     {"checkpoint_bytes", rank.checkpoint_bytes},
                     {"memory_bytes", json_of(rank.held)}});
  }
  return {{"parameters", workload.parameter_count},
          {"trained_parameters", trained},
          {"bucket_bytes", plan.bucket_bytes},
          {"units", workload.units.size()},
          {"lanes", workload.batch.lanes.value},
          {"global_batch_size", workload.batch.global_batch_size.value},
          {"steps_per_epoch", workload.steps_per_epoch},
          {"total_steps", workload.total_steps},
          {"samples", workload.samples},
          {"sample_bytes", workload.sample_bytes},
          {"files", workload.files},
          {"file_bytes", workload.file_bytes},
          {"ranks", ranks},
          {"host_bytes", plan.host_bytes},
          {"checkpoint",
           {{"bytes", plan.checkpoint_bytes()},
            {"model_bytes", plan.model_bytes},
            {"optimizer_bytes", plan.state_bytes},
            {"writers", plan.writers},
            {"host_bytes", plan.host_checkpoint_bytes}}},
          {"warnings", plan.warnings},
          {"remarks", workload.remarks}};
}

Json measured_json(const engine::JobPlan& plan, const MeasuredHere& here) {
  Json checks = Json::array();
  for (const Check& check : here.checks) {
    checks.push_back({{"ranks", check.ranks},
                      {"predicted_s", check.predicted_s},
                      {"measured_s", check.measured_s},
                      {"error", check.error()},
                      {"spread", check.spread}});
  }
  Json phases = Json::object();
  for (const auto& [name, seconds] : here.phases) phases[name] = seconds;
  const auto link = [](const LinkSpeed& level) {
    return Json{{"latency_s", level.latency_s}, {"bytes_per_s", level.bytes_per_s}};
  };
  return {{"ranks", here.ranks},
          {"step_s", here.step_s},
          {"phases_s", phases},
          {"data_wait_s", here.data_s},
          {"activation_bytes", here.activation_bytes},
          {"process_bytes", here.base_bytes},
          {"host_total_bytes", host_total_bytes(plan, here)},
          {"memory_bytes",
           {{"parameters", here.held.parameters},
            {"gradients", here.held.gradients},
            {"optimizer", here.held.state},
            {"buffers", here.held.buffers},
            {"sharers", here.held.sharers}}},
          {"overlaps", here.overlaps},
          {"links",
           {{"memory", link(here.network.memory)},
            {"inside", link(here.network.inside)},
            {"between", link(here.network.between)}}},
          {"save_bytes_per_s", here.save_bytes_per_s},
          {"checks", checks}};
}

Json predicted_json(const PredictedRun& predicted, const engine::JobShape& shape) {
  const double step = predicted.step.seconds();
  Json json = {{"step_s", step},
               {"step_low_s", predicted.low(step)},
               {"step_high_s", predicted.high(step)},
               {"error", predicted.error},
               {"compute_s", predicted.step.compute_s},
               {"update_s", predicted.step.update_s},
               {"inside_s", predicted.step.inside_s},
               {"between_s", predicted.step.between_s},
               {"samples_per_s", predicted.samples_per_s},
               {"run_s", predicted.run_s()},
               {"run_low_s", predicted.low(predicted.run_s())},
               {"run_high_s", predicted.high(predicted.run_s())},
               {"rank_hours", predicted.hours() * shape.ranks},
               {"host_hours", predicted.hours() * shape.hosts}};
  if (predicted.limit_s) json["limit_s"] = *predicted.limit_s;
  if (predicted.save_s) json["save_s"] = *predicted.save_s;
  return json;
}

}  // namespace

PredictedRun predict_run(const engine::Workload& workload, const engine::JobPlan& plan, const MeasuredHere& here) {
  const JobForm form = form_of(workload, plan);
  const LoneCosts& costs = costs_for(here, form.ranks_per_host());
  PredictedRun predicted{.step = predict_step(form, costs, here.network, here.ready),
                         .error = error_of(here.checks, costs.spread),
                         .steps = workload.total_steps};
  predicted.samples_per_s = static_cast<double>(workload.batch.global_batch_size.value) / predicted.step.seconds();
  if (here.save_bytes_per_s > 0) {
    predicted.save_s = static_cast<double>(plan.checkpoint_bytes()) / here.save_bytes_per_s;
  }
  return predicted;
}

std::string text_of(const PlanPage& page) {
  const engine::JobShape& shape = page.plan.shape;
  std::string text = fmt::format("{} on {}, up to {} per host; strategy {}, backend {}\n\n",
                                 counted(shape.ranks, "rank"), counted(shape.hosts, "host"),
                                 counted(shape.ranks_of(0), "rank"), page.plan.strategy, page.plan.backend);
  text += computed_text(page);
  if (page.here) text += "\n" + measured_text(page.plan, *page.here);
  if (page.predicted) text += "\n" + predicted_text(*page.predicted, shape);
  if (page.failures) text += "\n" + reliability_text(page);
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::string json_of(const PlanPage& page) {
  Json json = {{"ranks", page.plan.shape.ranks},
               {"hosts", page.plan.shape.hosts},
               {"strategy", page.plan.strategy},
               {"backend", page.plan.backend},
               {"computed", computed_json(page)}};
  if (page.here) json["measured"] = measured_json(page.plan, *page.here);
  if (page.predicted) json["predicted"] = predicted_json(*page.predicted, page.plan.shape);
  if (page.failures) {
    json["reliability"] = {{"job_mtbf_s", page.failures->job_mtbf_s}, {"failures", page.failures->failures},
                           {"daly_s", page.failures->daly_s},         {"young_s", page.failures->young_s},
                           {"wall_s", page.failures->wall_s},         {"effective", page.failures->effective},
                           {"save_s", page.failure_settings.save_s},  {"restart_s", page.failure_settings.restart_s}};
  }
  json["planning_s"] = page.planning_s;
  return json.dump(2);
}

}  // namespace lockstep::trainer
