// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::engine {
struct Registry;
const Registry& builtin_registry();
}  // namespace lockstep::engine

namespace lockstep::trainer {

/// The program: parses the command line, starts MPI, executes the command and ends MPI.
///
/// Your own program with its models or data fills engine::Registry (lockstep/engine/registry.hpp) and calls this
/// function once, at the end of main. It starts MPI itself, so main must not do so before. It does not return: it ends
/// the process with the documented exit code, without running LibTorch's slow destructors.
[[noreturn]] void run(int argc, char** argv, const engine::Registry& registry = engine::builtin_registry());

}  // namespace lockstep::trainer
