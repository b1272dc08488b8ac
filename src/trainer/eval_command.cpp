// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <iomanip>
#include <sstream>

#include "trainer/commands.hpp"

namespace lockstep::trainer {

ExitCode evaluate(const Job& job, const config::Invocation& invocation) {
  const engine::StoredConfig stored = engine::stored_config(job.world, invocation.switches.at("from"));
  std::optional<config::Invocation> settled;
  job.world.together([&] {  // the run's own configuration first, then what this command line says
    settled = config::parse({job.arguments.begin() + 1, job.arguments.end()}, job.keys,
                            {{stored.checkpoint, stored.config_ini}});
  });
  const engine::Evaluation result =
      engine::evaluate_checkpoint(job.world, settled->config.sections(), job.tables, stored.checkpoint);
  std::ostringstream text;
  text << "step " << result.step << " val/loss " << std::setprecision(6) << result.loss << " val/accuracy "
       << result.accuracy << " val/count " << result.count;
  for (const auto& [name, number] : result.numbers) text << " val/" << name << " " << number;
  text << " from " << stored.checkpoint << (result.is_average ? ", averaged weights" : "");
  log::plain(text.str());
  return ExitCode::done;
}

}  // namespace lockstep::trainer
