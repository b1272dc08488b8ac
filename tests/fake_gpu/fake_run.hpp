// SPDX-License-Identifier: BSD-3-Clause
// Runs of the trainer on the fake GPU.
#pragma once

#include <cstdlib>
#include <string>

#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// The settings of a run, except those of the data.
inline const std::string kFakeOptions =
    "--data.workers=0 --model.name=mlp --optim.name=adamw --optim.lr=0.002 --train.max_steps=12 "
    "--log.every=1 --run.peak_flops=0 ";
inline const std::string kFakeRun = " train --data.train_size=240 --data.val_size=40 " + kFakeOptions;

/// Variables with which CPU and fake GPU have the same kernels: at this level of processors the CPU has none of
/// Lockstep's own, which round in another order, and the fake GPU rounds 16-bit products as the CPU does. The level of
/// the libraries is lowered, too: a test at a lower level passes on limits of its own.
inline const std::string kKernelsOfTheFake =
    "LOCKSTEP_CPU=generic ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 FAKE_GPU_16BIT_PRODUCTS=cpu ";

/// The words before a program that runs on the fake GPU.
inline std::string on_fake_gpu() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return "'" + std::string(source != nullptr ? source : ".") + "/tests/fake_gpu/run' ";
}

/// @param variables  of the shell, such as "FAKE_GPU_SCHEDULE=lazy"
inline ProgramResult run_on_fake_gpu(int ranks, const std::string& arguments, const std::string& variables = "") {
  return run_shell(variables + " " + mpirun_command(ranks) + " " + on_fake_gpu() + trainer_program() + arguments);
}

}  // namespace lockstep::testing
