// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <functional>
#include <string>

#include "support/temporary_folder.hpp"

namespace lockstep::report {

using Folder = testing::TemporaryFolder;

/// The message of the ConfigError that `body` throws, or "".
inline std::string sentence_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::report
