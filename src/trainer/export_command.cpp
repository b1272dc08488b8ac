// SPDX-License-Identifier: BSD-3-Clause

#include "engine/settings/agreed.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

ExitCode export_model(const CommandJob& job, const config::Invocation& invocation) {
  const engine::StoredConfig stored = engine::stored_config(job.world, invocation.words.at(0));
  // The run's own configuration first, then the keys of this command line.
  const config::Invocation settled = engine::agreed(job.world, [&] {
    config::Invocation parsed = parse_arguments(job, {{stored.checkpoint, stored.config_ini}});
    parsed.config.require_read();
    return parsed;
  });
  const std::string& target = invocation.options.at("to");
  const std::int64_t step = engine::export_script(job.world, settled.config.sections(), stored.checkpoint, target);
  print_result(job.world, "step " + std::to_string(step) + " of " + stored.checkpoint + " written to " + target);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
