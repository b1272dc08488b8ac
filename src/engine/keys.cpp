// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/table.hpp>
#include <lockstep/engine/average.hpp>
#include <lockstep/engine/hook_table.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/init_from.hpp>
#include <lockstep/engine/resume_settings.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/meter.hpp>

namespace lockstep::engine {

namespace {

constexpr double kManySteps = 1e12;  // what twelve digits of a checkpoint's name hold

KeySpec count(const char* name, const char* value, const char* help, double min = 0, double max = kManySteps) {
  return {.name = name, .type = KeyType::integer, .default_value = value, .help = help, .min = min, .max = max};
}

KeySpec text(const char* name, const char* value, const char* help) {
  return {.name = name, .type = KeyType::text, .default_value = value, .help = help};
}

/// A number in (min, max].
KeySpec above(const char* name, double min, double max, const char* value, const char* help) {
  return {.name = name,
          .type = KeyType::real,
          .default_value = value,
          .help = help,
          .min = min,
          .max = max,
          .min_is_exclusive = true};
}

KeySpec step_key(const std::vector<StepRow>& steps) {
  std::string help = "what a step is";
  for (const StepRow& row : steps) help += "; " + row.name + ": " + row.help;
  return {.name = "train.step", .type = KeyType::text, .default_value = "model", .help = help};
}

KeySpec metrics_key(const char* name, const char* help, const std::vector<metrics::MeterRow>& meters) {
  KeySpec key{.name = name, .type = KeyType::texts, .default_value = "", .help = help};
  for (const metrics::MeterRow& row : meters) {
    key.parts.push_back({.name = row.name,
                         .type = KeyType::text,
                         .default_value = "",
                         .help = row.help + " (" + row.needs + ")",
                         .parts = row.keys});
  }
  return key;
}

}  // namespace

KeySpecs engine_keys(const std::vector<metrics::MeterRow>& meters, const std::vector<StepRow>& steps,
                     const std::vector<HookRow>& hooks) {
  KeySpecs keys = {
      text("run.name", "", "name of the run; empty: the time of its start"),
      text("run.dir", "", "folder of everything the run writes; empty: runs/<run.name>"),
      count("run.seed", "1", "seed of initial values, sample order and dropout", 0, 9e15),
      {.name = "run.device",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "where a rank computes: cpu, cuda (one GPU each), or auto: a GPU where every rank can have one",
       .choices = {"auto", "cpu", "cuda"}},
      count("run.threads", "0", "compute threads of a rank; 0: OMP_NUM_THREADS, else its part of the processors", 0,
            1024),
      {.name = "run.deterministic",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "only kernels that give the same bits in every run; an operation that has none is refused"},
      {.name = "run.cudnn_benchmark",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "on a GPU: choose convolution kernels by trying them; off with run.deterministic"},
      {.name = "run.diff_rank_seed",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "ranks draw different dropout; false: every rank draws the same for its n-th sample"},
      {.name = "run.compile",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "for configurations that carry it: true is refused, models in C++ are not compiled"},
      count("run.nofile_limit", "4096", "files that a rank may open, as far as the system lets it", 0, 1 << 20),
      count("train.global_batch_size", "48", "samples of one step, over all ranks", 1, 1 << 30),
      count("train.micro_batch", "0", "samples of one forward on one rank, at most; bounds memory; 0: no bound", 0,
            1 << 30),
      count("train.lanes", "0",
            "parts of a global batch that are summed by one tree, so that results have the same bits on any number of "
            "ranks up to this; 0: off",
            0, 4096),
      count("train.max_steps", "0", "steps after which the run ends; 0: no such bound"),
      count("train.max_epochs", "5", "epochs after which the run ends; 0: no such bound", 0, 1e9),
      text("train.time_limit", "",
           "seconds or H:MM:SS from the start, before which the run saves and returns 75; empty: slurm's, else none"),
      text("train.clip_grad", "",
           "norm:V scales gradients down to norm V (norm:V:p=1, norm:V:p=inf: to another norm), value:V clamps each "
           "element; empty: off"),
      {.name = "train.clip_scope",
       .type = KeyType::choice,
       .default_value = "all",
       .help = "whose norm that is: that of all gradients, or of each parameter group by itself",
       .choices = {"all", "group"}},
      {.name = "train.precision",
       .type = KeyType::choice,
       .default_value = "fp32",
       .help =
           "type of computation; bf16, fp16: parameters stay fp32, matrix products and convolutions are in 16 bits; "
           "tf32: they are in TF32 on GPUs; fp64: all of it",
       .choices = {"fp32", "fp64", "bf16", "fp16", "tf32"}},
      text("train.loss_scale", "dynamic",
           "fp16: what losses are multiplied by for backward: a number, or dynamic: the scale grows and backs off"),
      above("train.init_scale", 0, 1e38, "65536", "fp16: the dynamic scale at first"),
      above("train.growth_factor", 1, 1e6, "2", "fp16: by how much it grows after train.growth_interval steps"),
      above("train.backoff_factor", 0, 1, "0.5", "fp16: by how much it backs off after a step that was skipped"),
      count("train.growth_interval", "2000", "fp16: steps with finite gradients after which it grows", 1),
      step_key(steps),
      hooks_key(hooks),
      metrics_key("train.metrics", "NAME,key=value: what is measured while training, over every epoch", meters),
      text("train.phases", "",
           "pattern of epochs and evaluations, repeated: train:2,test; empty: as section eval says"),
      {.name = "train.nonfinite",
       .type = KeyType::choice,
       .default_value = "stop",
       .help = "what to do when a loss or gradient is not finite: stop; skip the step; or roll_back to the last "
               "checkpoint, and skip the step when it comes again",
       .choices = {"stop", "skip", "roll_back"}},
      count("train.max_roll_backs", "3", "times that a run goes back to a checkpoint before it stops", 0, 1e6),
      count("eval.interval", "0",
            "steps between evaluations of the test split; 0: at the end of epochs (eval.every_epochs)"),
      count("eval.every_epochs", "1", "epochs between evaluations, where eval.interval is 0; the last is evaluated", 1),
      count("eval.begin_epoch", "1", "the first epoch with an evaluation, where eval.interval is 0", 1),
      count("eval.batch_size", "200", "samples of one forward on one rank during evaluation", 1, 1 << 30),
      metrics_key("eval.metrics", "NAME,key=value: what is measured beside loss and accuracy", meters),
      weights_key("eval.weights", "which weights are evaluated, in a run and by `trainer eval`"),
      count("log.interval", "10", "steps between lines of the log and of metrics.jsonl", 1),
      {.name = "log.tensorboard",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "write the numbers of metrics.jsonl to a TensorBoard event file in run.dir, too"},
      count("log.pictures", "16",
            "samples of the test split that report.html and TensorBoard show with the model's predictions; 0: none", 0,
            1000),
      {.name = "log.sections",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "measure the sections of a step (reading, forward, loss, backward, update) in ms; train.step=standard "
               "always does"},
      count("ckpt.every_steps", "0", "steps between checkpoints; 0: off"),
      count("ckpt.every_epochs", "0", "epochs between checkpoints; 0: off"),
      {.name = "ckpt.every_secs",
       .type = KeyType::real,
       .default_value = "900",
       .help = "seconds between checkpoints, by the clock of rank 0; 0: off",
       .min = 0},
      {.name = "ckpt.async",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "write checkpoints while training goes on; takes memory for one more copy of the state"},
      {.name = "ckpt.mode",
       .type = KeyType::choice,
       .default_value = "replicated",
       .help = "replicated: one file in a folder; sharded: a file of each writer; single: a file without a folder",
       .choices = {"replicated", "sharded", "single"}},
      count("ckpt.writers", "0", "ranks that write a sharded checkpoint; 0: one for each host", 0, 1 << 20),
      count("ckpt.keep_last", "3", "newest checkpoints to keep", 1),
      count("ckpt.keep_every", "0", "checkpoints whose step is a multiple of this are kept for ever; 0: none"),
      count("ckpt.keep_best", "1",
            "checkpoints of the steps with the best evaluations, which are saved and kept; 0: none", 0, 1000),
      text("ckpt.best_metric", "val/loss", "metric of the evaluation that tells which are best"),
      {.name = "ckpt.best_rule",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "which of its values are better: less, greater, or auto: as its name tells",
       .choices = {"auto", "less", "greater"}},
      count("ckpt.verify_every", "10", "the first save and every such one is read back and checked; 0: none"),
      count("ckpt.max_failures", "5", "failed saves in a row after which the run ends", 1),
  };
  const KeySpecs resume = ResumeSettings::keys();
  keys.push_back(resume.front());  // the one without a section comes before section init
  for (const KeySpec& key : InitSettings::keys()) keys.push_back(key);
  keys.insert(keys.end(), resume.begin() + 1, resume.end());
  return keys_of_rows(std::move(keys), steps);
}

}  // namespace lockstep::engine
