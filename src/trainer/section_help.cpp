// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands.hpp"

namespace lockstep::trainer {

const config::SectionHelp& section_help() {
  static const config::SectionHelp sections = {
      {"", "keys without a section"},
      {"ckpt", "when checkpoints are saved and which are kept"},
      {"comm", "how ranks talk to each other"},
      {"data", "what is trained on"},
      {"ddp", "buckets and the placement of parameters"},
      {"ema", "an average of past weights beside the trained ones"},
      {"eval", "evaluation on the validation split"},
      {"log", "lines on the console and in metrics.jsonl"},
      {"model", "what is trained"},
      {"optim", "the optimizer"},
      {"run", "name, folder, seed and threads of the run"},
      {"sched", "the learning rate over the steps"},
      {"train", "batch sizes, length and precision of the training"},
  };
  return sections;
}

}  // namespace lockstep::trainer
