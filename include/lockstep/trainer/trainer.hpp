// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::engine {
struct Tables;
const Tables& builtin_tables();
}  // namespace lockstep::engine

namespace lockstep::trainer {

/// The program: parses, starts MPI, does what the command line says and ends MPI.
///
/// A program of yours with models or data of its own fills engine::Tables (lockstep/engine/tables.hpp) and returns what
/// this returns. Call it once, first thing in main, and leave by it: it ends the process with the documented exit code
/// without running LibTorch's slow destructors.
[[noreturn]] void run(int argc, char** argv, const engine::Tables& tables = engine::builtin_tables());

}  // namespace lockstep::trainer
