// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/weights_request.hpp"

#include <lockstep/core/error.hpp>

#include <optional>

#include "trainer/commands/preset.hpp"

namespace lockstep::trainer {

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
  std::optional<config::Invocation> settled;
  job.world.all_or_throw([&] {
    settled = parse_arguments(job, {{stored.checkpoint, stored.config_ini}});
    if (!settled->config.section("data").origin("preset").starts_with(stored.checkpoint)) {
      expand_preset(settled->config);
    }
  });
  return {.config = std::move(settled->config), .checkpoint = stored.checkpoint};
}

}  // namespace lockstep::trainer
