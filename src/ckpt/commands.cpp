// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/commands.hpp"

namespace lockstep::ckpt {

namespace {

using Options = std::vector<OptionSpec>;

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
const Options kPlot = {{"out", "FILE.svg", "Output file. If not given, the image is written to standard output"},
                       {"bins", "N", "Number of bins of hist (default 60)"},
                       {"title", "TEXT", "Title of the plot"},
                       {"width", "N", "Width in pixels (default 720)"}};
const Options kConvert = {
    {"to", "PATH", "Output file: .safetensors, .pt, .npz or .h5; --as timm: a folder. It must not exist"},
    {"as", "LIBRARY", "Write what timm (a folder) or torchvision (.pth or .safetensors) loads strictly"},
    {"only", "PART", "model (default: parameters and buffers), ema, all, or optimizer; --as: model, ema (default)"},
    {"dtype", "TYPE", "Convert real numbers to float32, float64, float16 or bfloat16"},
    {"class-names", "FILE", "Class names for --as, one per line; default: those of the checkpoint"},
    {"rename", "FROM=TO", "Replace the prefix FROM of names by TO; re:FROM=TO: of a regular expression. Repeatable"}};
const Options kPrune = {{"keep", "N", "Number of latest checkpoints to keep (default 3)"},
                        {"yes", "", "Delete the listed checkpoints"}};
const OptionSpec kToFolder = {"to", "DIR", "Folder in which the new checkpoint is written as step-<step>"};
const Options kAverage = {kToFolder};
const Options kCast = {kToFolder, {"dtype", "TYPE", "float32, float64, float16 or bfloat16 (default)"}};
const Options kEdit = {
    kToFolder, {"set", "NAME=VALUE", "Set an attribute, such as run_id=x or /sched/0@first_step=0. May be repeated"}};
const Options kLineageOptions = {{"mermaid", "", "Print a Mermaid diagram for Markdown"}};

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> rows = {
      {"info", "FILE", 1, 1, "Prints step, optimizer, sizes and origin of a checkpoint", {}, info},
      {"ls", "FILE", 1, 1, "Lists the arrays with type, shape and size", {}, list},
      {"tree", "FILE", 1, 1, "Lists the arrays as a tree of modules; consecutive equal modules are folded", {}, tree},
      {"show", "FILE NAME[0:4,:,3]", 1, 2, "Prints the values of an array, or the attributes of a group", kShow, show},
      {"stat", "FILE", 1, 1, "Prints minimum, maximum, mean, number of zeros and of non-finite elements of each array",
       kStat, stat},
      {"hist", "FILE NAME", 1, 2, "Prints a histogram of an array", kHist, hist},
      {"verify", "FILE...", 1, kAny, "Verifies every byte and reports damaged arrays", kVerify, verify},
      {"diff", "A B", 2, 2, "Compares two files; exits with 1 if they differ", kDiff, diff},
      {"hash",
       "FILE",
       1,
       1,
       "Prints a digest of each array and of the whole state, independent of the file format",
       {},
       hash},
      {"plot", "KIND FILE...", 2, 3, "Plots to SVG: hist FILE NAME, norms FILE, updates A B, curves RUN", kPlot, plot},
      {"convert", "SRC", 1, 1, "Converts a file to .safetensors, .pt, .npz or .h5, or for timm or torchvision",
       kConvert, convert},
      {"average", "A B...", 2, kAny, "Writes the last checkpoint with the average of the models of all checkpoints",
       kAverage, average},
      {"cast", "FILE", 1, 1, "Writes a checkpoint with the model in another floating-point type", kCast, cast},
      {"edit", "FILE", 1, 1, "Writes a checkpoint with other attributes", kEdit, edit},
      {"doctor",
       "DIR",
       1,
       1,
       "Checks a run for stale files, damaged checkpoints, lease, permissions and disk space",
       {},
       doctor},
      {"prune", "DIR", 1, 1, "Prints which checkpoints the retention rules would delete, and why; --yes deletes them",
       kPrune, prune},
      {"lineage", "DIR", 1, 1, "Prints from which checkpoints a run was resumed", kLineageOptions, lineage},
  };
  return rows;
}

}  // namespace lockstep::ckpt
