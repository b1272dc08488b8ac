// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands.hpp"

namespace lockstep::trainer {

const config::SectionHelp& section_help() {
  static const config::SectionHelp sections = {
      {"", "Keys without a section"},
      {"ckpt", "Saving and keeping checkpoints"},
      {"comm", "Communication backend and time limits"},
      {"data", "Data source and sampling"},
      {"ddp", "Gradient buckets, compression and placement of parameters"},
      {"distill", "Teacher of a distillation (loss.name=distill)"},
      {"ema", "Running average of the weights"},
      {"eval", "Evaluation during training and by `trainer eval`"},
      {"init", "Initial parameters from a file"},
      {"log", "Progress lines, metrics.jsonl and the report"},
      {"model", "Model and preprocessing"},
      {"optim", "Optimizer and parameter groups"},
      {"predict", "Output of `trainer predict`"},
      {"resume", "Resuming from a checkpoint"},
      {"run", "Name, output folder, seed, device and threads of the run"},
      {"sched", "Learning rate schedule"},
      {"strategy", "Distribution of the model over ranks"},
      {"train", "Batch size, length, precision and step of the training"},
  };
  return sections;
}

}  // namespace lockstep::trainer
