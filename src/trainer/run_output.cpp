// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/run_output.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "engine/hooks/hooks.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::trainer {

namespace fs = std::filesystem;

std::string rank_file(const std::string& folder, int rank, const std::string& kind, const std::string& ending) {
  std::string number = std::to_string(rank);
  number.insert(0, 5 - std::min<std::size_t>(5, number.size()), '0');
  return folder + "/logs/" + kind + "_" + number + ending;
}

void write_run_files(const std::string& folder, const config::Config& config, const std::string& environment) {
  report::write_text(folder + "/config.resolved.ini", config.to_ini());
  report::write_text(folder + "/config.resolved.json", config.to_json());
  report::write_text(folder + "/env.json", environment);
  const fs::path log = folder + "/train.log";  // the name that people look for
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(log))) fs::create_symlink("logs/rank_00000.log", log, ignored);
}

void report_to(RunReport& report, engine::TrainRequest& request) {
  request.reporter = [&report](const Record& record) { report.on_record(record); };
  request.on_start = [&report](std::int64_t step, const auto& from) { report.on_start(step, from); };
  request.on_artifacts = [&report](engine::EventStorage& events) { report.on_artifacts(events); };
  request.on_report = [&report](const parallel::DdpReport& times) { report.on_ddp_report(times); };
  request.hooks.emplace_back(
      engine::Priority::high,
      engine::callback_hook(
          {.after_step = [&report](engine::RunView&, const engine::StepReport& step) { report.on_step(step); },
           .reads = engine::HookReads::nothing()}));
}

}  // namespace lockstep::trainer
