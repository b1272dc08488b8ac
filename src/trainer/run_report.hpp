// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/measurements.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <string>

#include "report/console/progress.hpp"
#include "report/files/artifacts.hpp"
#include "report/files/metrics.hpp"
#include "report/files/run_files.hpp"
#include "report/tensorboard/tensorboard_writer.hpp"
#include "trainer/heal/recovery.hpp"

namespace lockstep::trainer {

/// 0 if the run is complete, 75 if it can be resumed.
ExitCode exit_code_of(engine::Outcome outcome) noexcept;

/// The output that people and scripts see of a training run: console lines, progress bar, metrics.jsonl, summary.csv,
/// tables.json, pictures.json, TensorBoard's event file, STATUS.json and the drawings. Lives on rank 0.
class RunReport {
 public:
  /// @param has_tensorboard  whether there is a TensorBoard event file, too
  /// @param console_s        minimum time between progress lines on the console
  RunReport(std::string folder, bool has_tensorboard, double console_s);

  void on_start(std::int64_t step, const std::optional<std::string>& checkpoint);
  /// States, after the first step, how the run has continued after a failure. Before on_start.
  void on_recovery(Recovery recovery) { recovery_ = std::move(recovery); }
  void on_record(const Record& record);
  void on_step(const engine::StepReport& step);
  /// Takes tables, images and histograms out of `events`.
  void on_artifacts(engine::EventStorage& events);
  void on_ddp_report(const parallel::DdpReport& report);
  void on_end(engine::Outcome outcome);
  void on_failure(const std::exception& failure, int exit_code);

 private:
  void log_progress(const std::string& line);
  /// STATUS.json, with the progress.
  void write_status(report::RunStatus status) const;
  void print_captions(const std::vector<Picture>& images);
  /// report.html; says why there is none, or "" = a run that ended well does not fail for that.
  std::string write_page() const;
  void report_recovery();

  std::string folder_;
  report::MetricsWriter metrics_;
  report::SummaryWriter summary_;
  report::ArtifactsWriter artifacts_;
  bool has_tensorboard_;
  std::chrono::duration<double> console_interval_;
  std::optional<report::TensorBoardWriter> tensorboard_;  // once it is known at which step the run begins
  report::ProgressBar bar_;
  report::Eta eta_;
  engine::Progress progress_;
  std::optional<double> eta_seconds_;
  std::chrono::steady_clock::time_point status_written_;
  std::optional<std::chrono::steady_clock::time_point> progress_shown_;
  bool is_first_step_ = true;
  std::optional<Recovery> recovery_;  // until it has been reported
};

}  // namespace lockstep::trainer
