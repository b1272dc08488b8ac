// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::engine {
struct Registry;
const Registry& builtin_registry();
}  // namespace lockstep::engine

namespace lockstep::trainer {

/// The program: parses, starts MPI, does what the command line says and ends MPI.
///
/// A program of yours with models or data of its own fills engine::Registry (lockstep/engine/registry.hpp) and returns
/// what this returns. Call it once, first thing in main, and leave by it: it ends the process with the documented exit
/// code without running LibTorch's slow destructors.
[[noreturn]] void run(int argc, char** argv, const engine::Registry& registry = engine::builtin_registry());

}  // namespace lockstep::trainer
