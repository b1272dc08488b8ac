// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/commands.hpp"

namespace lockstep::ckpt {

namespace {

using Options = std::vector<CommandOption>;

constexpr std::size_t kAny = 1000;

const Options kShow = {{"precision", "N", "Significant digits (default 6)"},
                       {"hex", "", "Print the bytes of each element"},
                       {"text", "", "Print an array of bytes as text"}};
const Options kStat = {{"recompute", "", "Compute the statistics from the data even if the file contains them"}};
const Options kHist = {{"bins", "N", "Number of bins (default 20)"}};
const Options kVerify = {{"all", "", "Verify all checkpoints of the folder and print a table"}};
const Options kDiff = {{"bitwise", "", "Compare bytes, so that -0.0 differs from 0.0"},
                       {"atol", "X", "Elements are equal if |a - b| <= atol + rtol * |b| (default 0)"},
                       {"rtol", "X", "See --atol (default 0)"},
                       {"nan-equal", "", "NaN equals NaN"}};
const Options kConvert = {
    {"to", "PATH", "Output file: .safetensors, .pt, .npz or .h5; --as timm: a folder. It must not exist"},
    {"as", "LIBRARY", "Write what timm (a folder) or torchvision (.pth or .safetensors) loads strictly"},
    {"only", "PART", "model (default: parameters and buffers), ema, all, or optimizer; --as: model, ema (default)"},
    {"dtype", "TYPE", "Convert real numbers to float32, float64, float16 or bfloat16"},
    {"class-names", "FILE", "Class names for --as, one per line; default: those of the checkpoint"},
    {"rename", "FROM=TO", "Replace the prefix FROM of names by TO; re:FROM=TO: of a regular expression. Repeatable"}};
const Options kPrune = {{"keep", "N", "Number of latest checkpoints to keep (default 3)"},
                        {"yes", "", "Delete the listed checkpoints"}};
const CommandOption kToFolder = {"to", "DIR", "Folder in which the new checkpoint is written as step-<step>"};
const Options kAverage = {kToFolder};
const Options kCast = {kToFolder, {"dtype", "TYPE", "float32, float64, float16 or bfloat16 (default)"}};
const Options kEdit = {
    kToFolder, {"set", "NAME=VALUE", "Set an attribute, such as run_id=x or /sched/0@first_step=0. May be repeated"}};
const Options kLineageOptions = {{"mermaid", "", "Print a Mermaid diagram for Markdown"}};

}  // namespace

const std::vector<CkptCommand>& commands() {
  static const std::vector<CkptCommand> rows = {
      {{"info", "Prints step, optimizer, sizes and origin of a checkpoint", {"FILE"}}, info},
      {{"ls", "Lists the arrays with type, shape and size", {"FILE"}}, list},
      {{"tree", "Lists the arrays as a tree of modules; consecutive equal modules are folded", {"FILE"}}, tree},
      {{.name = "show",
        .help = "Prints the values of an array, or the attributes of a group",
        .words = {"FILE", "NAME[0:4,:,3]"},
        .optional_words = 1,
        .options = kShow},
       show},
      {{.name = "stat",
        .help = "Prints minimum, maximum, mean, number of zeros and of non-finite elements of each array",
        .words = {"FILE"},
        .options = kStat},
       stat},
      {{.name = "hist",
        .help = "Prints a histogram of an array",
        .words = {"FILE", "NAME"},
        .optional_words = 1,
        .options = kHist},
       hist},
      {{.name = "verify",
        .help = "Verifies every byte and reports damaged arrays",
        .words = {"FILE..."},
        .more_words = kAny,
        .options = kVerify},
       verify},
      {{.name = "diff",
        .help = "Compares two files; exits with 1 if they differ",
        .words = {"A", "B"},
        .options = kDiff},
       diff},
      {{"hash", "Prints a digest of each array and of the whole state, independent of the file format", {"FILE"}},
       hash},
      {{.name = "convert",
        .help = "Converts a file to .safetensors, .pt, .npz or .h5, or for timm or torchvision",
        .words = {"SRC"},
        .options = kConvert},
       convert},
      {{.name = "average",
        .help = "Writes the last checkpoint with the average of the models of all checkpoints",
        .words = {"A", "B..."},
        .more_words = kAny,
        .options = kAverage},
       average},
      {{.name = "cast",
        .help = "Writes a checkpoint with the model in another floating-point type",
        .words = {"FILE"},
        .options = kCast},
       cast},
      {{.name = "edit", .help = "Writes a checkpoint with other attributes", .words = {"FILE"}, .options = kEdit},
       edit},
      {{"doctor", "Checks a run for stale files, damaged checkpoints, lease, permissions and disk space", {"DIR"}},
       doctor},
      {{.name = "prune",
        .help = "Prints which checkpoints the retention rules would delete, and why; --yes deletes them",
        .words = {"DIR"},
        .options = kPrune},
       prune},
      {{.name = "lineage",
        .help = "Prints from which checkpoints a run was resumed",
        .words = {"DIR"},
        .options = kLineageOptions},
       lineage},
  };
  return rows;
}

}  // namespace lockstep::ckpt
