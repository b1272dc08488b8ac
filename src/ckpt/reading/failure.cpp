// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/failure.hpp"

#include <lockstep/core/error.hpp>

#include <new>

namespace lockstep::ckpt {

namespace {

Exit code_of(CheckpointFault fault) {
  switch (fault) {
    case CheckpointFault::damaged:
      return Exit::corrupt;
    case CheckpointFault::io:
      return Exit::io;
    case CheckpointFault::missing:
      return Exit::not_found;
    case CheckpointFault::other_kind:
      return Exit::usage;
    case CheckpointFault::incompatible:
      return Exit::incompatible;
    case CheckpointFault::refused:
      return Exit::refused;
  }
  return Exit::corrupt;
}

}  // namespace

Exit exit_code_of(const std::exception& error) {
  if (const auto* const failure = dynamic_cast<const Failure*>(&error)) return failure->code();
  if (const auto* const fault = dynamic_cast<const CheckpointError*>(&error)) return code_of(fault->fault());
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return Exit::usage;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return Exit::io;
  return Exit::internal;
}

}  // namespace lockstep::ckpt
