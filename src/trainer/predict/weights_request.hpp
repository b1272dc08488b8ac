// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "config/config.hpp"
#include "config/invocation.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

/// The configuration of `trainer eval` and `trainer predict`, and the checkpoint that --from names.
struct WeightsRequest {
  config::Config config;        ///< that of the run first, then the files and keys of the command line
  std::string checkpoint = {};  ///< empty = init.from of the configuration
};

/// @throws ConfigError  neither --from nor init.from is given, or both are; on every rank
/// Collective.
WeightsRequest weights_request(const CommandJob& job, const config::Invocation& invocation);

}  // namespace lockstep::trainer
