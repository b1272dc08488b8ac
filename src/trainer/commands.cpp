// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands/commands.hpp"

#include <lockstep/engine/registry.hpp>

#include "trainer/predict/settings.hpp"

namespace lockstep::trainer {

namespace {

const CommandOption kFrom = {.name = "from",
                             .value = "PATH",
                             .help = "Folder of a run, or a checkpoint",
                             .elsewhere = "see --init.from and --resume for training"};
const CommandOption kRanks = {.name = "ranks", .value = "N", .help = "Ranks of the job (default: those at hand)"};
const CommandOption kHosts = {
    .name = "hosts", .value = "N", .help = "Hosts of the job (default: with as many ranks as here)"};
const CommandOption kJson = {.name = "json", .help = "Print JSON"};

/// Supervision begins before MPI, if `heal` is the first argument. Here, it was not.
ExitCode refuse_heal(const CommandJob&, const config::Invocation&) {
  throw_agreed(ExitCode::configuration,
               "heal must be the first argument, and the program that it starts is mpirun or srun, as in: trainer heal "
               "mpirun -np 4 trainer train");
}

}  // namespace

const std::vector<TrainerCommand>& commands() {
  static const std::vector<TrainerCommand> rows = {
      {{.name = "train",
        .help = "Trains a model. This is the default command",
        .options = {{.name = "quiet", .help = "Print only warnings and errors, as with --log.level=warning"}}},
       train},
      {{.name = "eval",
        .help = "Evaluates a checkpoint, or the latest one of a run, given by --from or --init.from",
        .options = {kFrom,
                    kJson,
                    {.name = "predictions",
                     .value = "FILE",
                     .help = "Also write the predictions for all samples, in the formats of predict.out"}}},
       evaluate},
      {{.name = "predict",
        .help = "Writes the prediction for each sample to predict.out. The weights are those of --from or --init.from",
        .options = {kFrom},
        .keys = PredictSettings::keys()},
       predict},
      {{.name = "export",
        .help = "Writes the weights of a run with model.name=torchscript into a copy of its archive, for Python",
        .words = {"RUN"},
        .options = {{.name = "to", .value = "FILE", .help = "Output file, such as trained.pt", .is_required = true}}},
       export_model},
      {{.name = "config",
        .help = "Prints all keys with their values and the origin of each value",
        .options = {{.name = "groups", .help = "Print the parameter groups of the optimizer instead of the keys"},
                    {.name = "verbose", .help = "Also print the parameters of each group"}}},
       show_config},
      {{.name = "schedule",
        .help = "Prints the values of the schedule over the steps of a run, without starting it",
        .options = {{.name = "plot", .value = "FILE", .help = "Output SVG file for a plot of the values"}}},
       show_schedule},
      {{.name = "lr-find",
        .help = "Trains a few steps with increasing learning rates and suggests optim.lr. Writes no checkpoint",
        .options = {{.name = "lowest", .value = "RATE", .help = "First learning rate (default 1e-7)"},
                    {.name = "highest", .value = "RATE", .help = "Last learning rate (default 10)"},
                    {.name = "steps", .value = "N", .help = "Maximum number of steps (default 100)"},
                    {.name = "curve", .value = "FILE", .help = "Output SVG file for a plot of the losses"}}},
       find_lr},
      {{.name = "data",
        .help = "Describes the data set without training: counts, sizes, formats, duplicates, mean and standard "
                "deviation; windows, arrays, axes, chunks and times of fields. If images are damaged, they are listed "
                "and the exit code is 3",
        .options =
            {{.name = "sheet",
              .value = "FILE",
              .help = "Write a contact sheet of samples and training draws, as .html"},
             {.name = "speed", .value = "SECONDS", .help = "Measure reading, decoding and transforms for this time"},
             {.name = "check", .help = "Decode all images"},
             {.name = "statistics",
              .value = "FILE",
              .help = "Compute the statistics of fields as a training does, on all ranks, and write them as .json for "
                      "data.statistics=FILE"},
             kJson,
             {.name = "list-transforms",
              .help = "Print the transforms and their options instead. With --sheet, write a picture for each"}}},
       describe_data},
      {{.name = "report", .help = "Writes report.html into the folder of a run", .words = {"RUN"}}, write_report},
      {{.name = "compare",
        .help = "Writes a page that compares the curves, last values and settings of two runs or more",
        .words = {"RUN", "another RUN"},
        .more_words = 998,
        .options = {{.name = "out", .value = "FILE", .help = "Output file (default compare.html)"}}},
       compare_runs},
      {{.name = "doctor",
        .help = "Examines the machine with all ranks: launch, processors, memory, network, files of run.dir, Slurm. "
                "Prints what is wrong and what to do; the exit code is 2 if a run would fail",
        .options = {kJson}},
       examine},
      {{.name = "heal",
        .help =
            "Starts a job with its launcher, such as mpirun -np 4 trainer train, and starts it again with resume=auto "
            "after a failure of ranks, hosts or the launcher. It is the first argument of trainer",
        .words = {"LAUNCHER"},
        .more_words = 998,
        .options = {{.name = "max-heals",
                     .value = "N",
                     .help = "Maximum number of consecutive starts without a new checkpoint (default 5)"}}},
       refuse_heal},
      {{.name = "plan",
        .help = "Plans a job of any size in one page: exact memory, shares and checkpoints; the time of a step, "
                "measured on the ranks at hand and predicted for the job; the cost of failures",
        .options = {kRanks,
                    kHosts,
                    {.name = "computed", .help = "Print only what is exact, without measuring"},
                    {.name = "measure-s", .value = "SECONDS", .help = "Duration of each measurement (default 1)"},
                    {.name = "link-gbit", .value = "GBIT", .help = "Gbit/s between two hosts (default 10)"},
                    {.name = "latency-us",
                     .value = "US",
                     .help = "Microseconds of a message between hosts (default "
                             "20)"},
                    {.name = "mtbf-hours", .value = "HOURS", .help = "Mean time between failures of one host"},
                    {.name = "save-s", .value = "SECONDS", .help = "Time of a save (default: from a file in run.dir)"},
                    {.name = "restart-s",
                     .value = "SECONDS",
                     .help = "Time of a restart after a failure (default "
                             "60)"},
                    kJson}},
       plan_job},
      {{.name = "job",
        .help = "Prints a job script that trains with the given keys",
        .options = {{.name = "slurm", .help = "Print a script for sbatch"},
                    {.name = "plan", .value = "FILE", .help = "Output of `plan --json`, for ranks, time and memory"},
                    kRanks,
                    kHosts,
                    {.name = "cpus", .value = "N", .help = "Processors per rank (default run.threads, or 1)"},
                    {.name = "time",
                     .value = "TIME",
                     .help = "Time limit as D-HH:MM:SS (default: that of the plan, or "
                             "1-00:00:00)"}}},
       write_job},
      {{.name = "completion",
        .help = "Prints a script with which the shell completes commands, keys and values: bash or zsh",
        .words = {"SHELL"}},
       print_completion},
  };
  return rows;
}

KeySpecs trainer_keys(const mpi::Communicator& world, const engine::Registry& registry) {
  KeySpecs of_commands;
  for (const TrainerCommand& command : commands()) {
    of_commands.insert(of_commands.end(), command.keys.begin(), command.keys.end());
  }
  if (&registry != &engine::builtin_registry()) {
    world.all_or_throw([&] { engine::check_registry(registry, of_commands); });
  }
  KeySpecs keys = engine::all_keys(registry);
  keys.insert(keys.end(), of_commands.begin(), of_commands.end());
  return keys;
}

}  // namespace lockstep::trainer
