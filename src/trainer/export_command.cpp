// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include "trainer/commands.hpp"
#include "trainer/print_result.hpp"

namespace lockstep::trainer {

ExitCode export_model(const Job& job, const config::Invocation& invocation) {
  const engine::StoredConfig stored = engine::stored_config(job.world, invocation.words.at(0));
  std::optional<config::Invocation> settled;
  job.world.all_or_throw([&] {  // the run's own configuration first, then the keys of this command line
    settled = config::parse({job.arguments.begin() + 1, job.arguments.end()}, job.keys,
                            {{stored.checkpoint, stored.config_ini}});
  });
  const std::string& to = invocation.switches.at("to");
  const std::int64_t step = engine::export_script(job.world, settled->config.sections(), stored.checkpoint, to);
  print_result(job.world, "step " + std::to_string(step) + " of " + stored.checkpoint + " written to " + to);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
