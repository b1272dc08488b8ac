// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::engine {

/// Parameters without updates, and until when: both 0 = for the whole run.
struct Freezing {
  std::vector<std::string> patterns;
  std::int64_t step = 0;   ///< number of updates without them
  std::int64_t epoch = 0;  ///< number of epochs without them; used where it is not 0
  std::string place;       ///< start of messages about the configuration
  std::string name;        ///< start of lines of the log
};

/// Holds parameters, and keeps the blocks that the patterns name in evaluation mode meanwhile.
std::unique_ptr<Hook> freeze_until(Freezing freezing);

}  // namespace lockstep::engine
