// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/run_report.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <utility>

#include "core/system/resources.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"
#include "engine/session.hpp"
#include "plot/line_chart.hpp"
#include "plot/timeline_chart.hpp"
#include "report/page/run_page.hpp"

namespace lockstep::trainer {

namespace {

/// "lr/<group>" of a record, by group.
std::vector<std::pair<std::string, double>> group_lrs(const Record& record) {
  std::vector<std::pair<std::string, double>> rates;
  for (const auto& [name, value] : record.values) {
    if (name.starts_with("lr/")) rates.emplace_back(name.substr(3), record.number(name).value_or(0));
  }
  return rates;
}

/// The metrics of an evaluation that its line shows: that of the task first, then the next ones of the record.
std::vector<std::string> shown_metrics(const Record& record) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> shown;
  const auto show = [&](const std::string& name) {
    if (shown.size() < kMost && record.number(name) && std::ranges::find(shown, name) == shown.end()) {
      shown.push_back(name);
    }
  };
  for (const std::string& name : engine::reported_metrics()) show("val/" + name);
  const auto show_with = [&](std::int64_t parts) {
    for (const auto& [name, value] : record.values) {
      const bool is_metric = name.starts_with("val/") && name != "val/loss" && name != "val/count";
      if (is_metric && std::ranges::count(name, '/') == parts) show(name);
    }
  };
  show_with(1);
  if (shown.empty()) show_with(2);  // those of channels, such as val/rmse/t2m
  return shown;
}

/// " val/loss 0.2500 val/accuracy 0.9000": the loss and up to four metrics, with four significant digits.
std::string evaluation_line(const Record& record) {
  std::string text = fmt::format(" val/loss {:#.4g}", record.number("val/loss").value_or(0));
  for (const std::string& name : shown_metrics(record)) {
    text += fmt::format(" {} {:#.4g}", name, *record.number(name));
  }
  return text;
}

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStatusInterval{2};

/// A line for start-up measurements: a launcher may say when it began.
void report_start_up() {
  const char* const launch = std::getenv("LOCKSTEP_LAUNCH_TIME");
  if (launch == nullptr) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  TextWriter text;
  text << std::fixed << std::setprecision(3) << "first step finished " << now - parse_real(launch).value_or(0)
       << " s after launch, VmHWM " << std::setprecision(1) << peak_memory_mb() << " MB";
  log::info(text.str());
}

enum Kind : std::size_t { compute, update, transfer, wait, under_way };

const std::vector<plot::BarKind> kKinds = {
    {"compute"}, {"update"}, {"transfer"}, {"wait"}, {"under way", /*is_thin=*/true}};

plot::Bar bar(double begin_s, double end_s, Kind kind) { return {1000 * begin_s, 1000 * end_s, kind}; }

std::vector<report::StepTimes::TimedPart> parts_of(const parallel::StepTimeline& step) {
  return {{"compute", 1000 * step.compute()},
          {"update", 1000 * step.update()},
          {"transfer", 1000 * step.transfer()},
          {"wait", 1000 * step.wait()}};
}

/// Draws the losses of <folder>/metrics.jsonl over the steps into <folder>/loss.svg.
void draw_curves(const std::string& folder) {
  plot::LineChart chart{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {}, .log_y = true};
  const std::vector<std::pair<const char*, const char*>> curves = {{"loss", "training"},
                                                                   {"val/loss", "validation split"}};
  for (const auto& [key, name] : curves) {
    plot::Series series{.name = name, .points = {}};
    for (const auto& [step, value] : report::read_series(folder + "/metrics.jsonl", key)) {
      series.points.push_back({static_cast<double>(step), value});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (!chart.series.empty()) report::write_text(folder + "/loss.svg", plot::line_chart(chart));
}

/// Draws the slowest rank's step into <folder>/ddp.svg, and what the page of the run shows into <folder>/ddp.json,
/// if there is one to show.
void draw_ddp_report(const parallel::DdpReport& report, const std::string& folder) {
  if (report.steps == 0 || report.ranks.size() < 2) return;
  const std::size_t slowest = parallel::slowest_rank(report);
  const parallel::StepTimeline& step = report.ranks[slowest];
  plot::TimelineChart chart{.title = "A step of rank " + std::to_string(slowest) + ", the slowest",
                            .x_label = "ms",
                            .end = 1000 * step.end,
                            .kinds = kKinds,
                            .rows = {}};
  chart.rows.push_back({"step", {bar(0, step.backward_end, compute), bar(step.meeting_begin, step.meeting_end, wait)}});
  if (step.undivided_update > 0) {
    chart.rows.back().bars.push_back(bar(step.end - step.undivided_update, step.end, update));
  }
  for (std::size_t b = 0; b < step.buckets.size(); ++b) {
    const parallel::BucketTimes& times = step.buckets[b];
    chart.rows.push_back(
        {"bucket " + std::to_string(b),
         {bar(times.launched, times.wait_begin, under_way), bar(times.wait_begin, times.wait_end, wait),
          bar(times.visit_begin, times.visit_begin + times.transfer, transfer),
          bar(times.visit_end - times.update, times.visit_end, update)}});
  }
  report::write_text(folder + "/ddp.svg", plot::timeline_chart(chart));
  report::StepTimes times{.sentence = parallel::bound_sentence(report), .ranks = {}, .timeline = std::move(chart)};
  for (const parallel::StepTimeline& rank : report.ranks) times.ranks.push_back(parts_of(rank));
  report::write_step_times(folder, times);
}

}  // namespace

ExitCode exit_code_of(engine::Outcome outcome) noexcept {
  return outcome == engine::Outcome::stopped ? ExitCode::stopped : ExitCode::done;
}

RunReport::RunReport(std::string folder, bool has_tensorboard, double console_s)
    : folder_(std::move(folder)),
      metrics_(folder_ + "/metrics.jsonl"),
      summary_(folder_ + "/summary.csv"),
      artifacts_(folder_),
      has_tensorboard_(has_tensorboard),
      console_interval_(console_s) {
  write_status({.state = report::RunState::running});
}

/// Values of an earlier run in this folder beyond `step` will be written again.
void RunReport::on_start(std::int64_t step, const std::optional<std::string>& checkpoint) {
  metrics_.truncate_after_step(step);
  summary_.truncate_after_step(step);
  artifacts_.truncate_after_step(step);
  if (has_tensorboard_) tensorboard_.emplace(folder_, step + 1);
  progress_.step = step;
  if (recovery_) recovery_->resumed_step = step;
  std::error_code ignored;
  std::filesystem::remove(folder_ + "/failure.json", ignored);
  if (checkpoint) log::info("resumed at step " + std::to_string(step) + " from " + *checkpoint);
}

void RunReport::on_record(const Record& record) {
  const auto number = [&record](const std::string& name) { return record.number(name).value_or(0); };
  metrics_.write(record);
  if (tensorboard_) tensorboard_->write(record);
  artifacts_.put_units(record.units);
  if (record.kind == "eval") {
    summary_.write(record);
    log::info("step " + std::to_string(progress_.step) + evaluation_line(record));
  }
  if (record.kind != "train") return;
  const bool is_text = record.number("tokens_per_second").has_value();
  log_progress(report::console_line({.step = progress_.step,
                                     .total_steps = progress_.total_steps,
                                     .epoch = progress_.epoch,
                                     .loss = number("loss"),
                                     .lr = number("lr"),
                                     .group_lrs = group_lrs(record),
                                     .throughput = number(is_text ? "tokens_per_second" : "samples_per_second"),
                                     .throughput_unit = is_text ? "tokens/s" : "samples/s",
                                     .data_wait_share = number("data_wait"),
                                     .grad_norm = record.number("grad_norm"),
                                     .memory_mb = record.number("memory_mb"),
                                     .mfu = record.number("mfu"),
                                     .eta_seconds = eta_seconds_}));
}

/// Shows the first line, the last one, and others if enough time has passed.
void RunReport::log_progress(const std::string& line) {
  const auto now = Clock::now();
  const bool is_last = progress_.total_steps > 0 && progress_.step >= progress_.total_steps;
  const bool is_due = !progress_shown_ || now - *progress_shown_ >= console_interval_;
  if (!is_due && !is_last) {
    log::debug(line);
    return;
  }
  log::info(line);
  progress_shown_ = now;
}

void RunReport::on_step(const engine::StepReport& step) {
  if (is_first_step_) report_start_up();
  is_first_step_ = false;
  if (recovery_) report_recovery();
  progress_ = step.progress;
  eta_.add(step.seconds);
  const bool is_endless = static_cast<double>(progress_.total_steps) > engine::kMaxSteps;
  if (is_endless) progress_.total_steps = 0;
  if (!is_endless) eta_seconds_ = eta_.seconds_left(progress_.total_steps - progress_.step);
  bar_.update({.done = progress_.step, .total = progress_.total_steps, .eta_seconds = eta_seconds_});
  const auto now = Clock::now();
  if (now - status_written_ < kStatusInterval) return;
  status_written_ = now;
  write_status({.state = report::RunState::running, .eta_seconds = eta_seconds_});
}

/// A record of the step from which the run continues, and a line on the console.
void RunReport::report_recovery() {
  const Recovery recovery = *std::exchange(recovery_, std::nullopt);
  const double seconds = seconds_since_1970() - recovery.failed_at;
  const std::int64_t lost = std::max<std::int64_t>(0, recovery.reached_step - recovery.resumed_step);
  metrics_.write({.kind = "heal",
                  .values = {{"step", recovery.resumed_step},
                             {"heal/rung", std::int64_t{recovery.rung}},
                             {"heal/seconds", seconds},
                             {"heal/steps_lost", lost},
                             {"heal/cause", recovery.cause}}});
  log::info(fmt::format("recovered: {}; the next step was done {:.3f} s later, {} steps were done again",
                        recovery.cause, seconds, lost));
}

/// TensorBoard's images have no captions: they are in a text next to them.
void RunReport::print_captions(const std::vector<Picture>& images) {
  std::string lines;
  for (const Picture& image : images) {
    if (!image.caption.empty()) lines += "| " + image.name + " | " + image.caption + " |\n";
  }
  if (!tensorboard_ || lines.empty()) return;
  tensorboard_->write("captions", images.back().step, report::MarkedText{"| picture | |\n|---|---|\n" + lines});
}

void RunReport::on_artifacts(engine::EventStorage& events) {
  for (Table& table : events.take_tables()) artifacts_.put(std::move(table));
  const std::vector<Picture> images = events.take_images();
  print_captions(images);
  for (const Picture& image : images) {
    const report::EncodedImage png = report::png_of(image);
    if (tensorboard_) tensorboard_->write(image.name, image.step, png);
    artifacts_.put(report::base64_image(image, png));
  }
  for (const Histogram& histogram : events.take_histograms()) {
    if (tensorboard_) tensorboard_->write(histogram);
  }
  artifacts_.save();
}

void RunReport::on_ddp_report(const parallel::DdpReport& report) {
  const std::string text = parallel::timeline_text(report);
  if (!text.empty()) log::plain(text);
  log::info("ddp.report: " + parallel::bound_sentence(report));
  draw_ddp_report(report, folder_);
}

void RunReport::on_end(engine::Outcome outcome) {
  draw_curves(folder_);
  const bool is_done = outcome == engine::Outcome::done;
  write_status({.state = is_done ? report::RunState::done : report::RunState::stopped,
                .exit_code = static_cast<int>(exit_code_of(outcome))});
  const std::string reason = write_page();
  if (!reason.empty()) log::warning("report.html could not be written: " + reason);
}

void RunReport::on_failure(const std::exception& failure, int exit_code) {
  report::write_failure(folder_, failure, 0, progress_.step);
  write_status({.state = report::RunState::failed, .last_error = message_of(failure), .exit_code = exit_code});
  write_page();
}

void RunReport::write_status(report::RunStatus status) const {
  status.step = progress_.step;
  status.total_steps = progress_.total_steps;
  report::write_status(folder_, status);
}

std::string RunReport::write_page() const {
  try {
    report::write_text(folder_ + "/report.html", report::run_page(folder_));
    return "";
  } catch (const std::exception& failure) {
    return message_of(failure);
  }
}

}  // namespace lockstep::trainer
