// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "trainer/commands.hpp"

namespace lockstep::trainer {

namespace {

/// On rank 0. A file that exists is replaced when the new one is whole.
void write_predictions(const mpi::Communicator& world, const std::string& path, const std::string& lines) {
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    const std::string unfinished = path + ".tmp";
    std::ofstream file(unfinished, std::ios::binary);
    file << lines;
    file.close();
    std::error_code error;
    if (file) std::filesystem::rename(unfinished, path, error);
    if (!file || error)
      throw ConfigError("--predictions: '" + path + "' cannot be written; check that its folder exists");
  });
}

}  // namespace

ExitCode evaluate(const Job& job, const config::Invocation& invocation) {
  const engine::StoredConfig stored = engine::stored_config(job.world, invocation.switches.at("from"));
  std::optional<config::Invocation> settled;
  job.world.all_or_throw([&] {  // the run's own configuration first, then what this command line says
    settled = config::parse({job.arguments.begin() + 1, job.arguments.end()}, job.keys,
                            {{stored.checkpoint, stored.config_ini}});
  });
  const auto wanted = invocation.switches.find("predictions");
  const bool wants_predictions = wanted != invocation.switches.end();
  const engine::Evaluation result = engine::evaluate_checkpoint(job.world, settled->config.sections(), job.registry,
                                                                stored.checkpoint, wants_predictions);
  std::ostringstream text;
  text << "step " << result.step << std::setprecision(6);
  for (const auto& [name, number] : result.values) text << " val/" << name << " " << number;
  text << " val/count " << result.count;
  for (const auto& [name, number] : result.numbers) text << " val/" << name << " " << number;
  text << " from " << stored.checkpoint << (result.is_average ? ", averaged weights" : "");
  log::plain(text.str());
  if (wants_predictions) write_predictions(job.world, wanted->second, result.predictions);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
