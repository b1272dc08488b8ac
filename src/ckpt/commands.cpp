// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/commands.hpp"

namespace lockstep::ckpt {

namespace {

using Options = std::vector<OptionSpec>;

constexpr std::size_t kAny = 1000;

const Options kShow = {{"precision", "N", "significant digits (6)"},
                       {"hex", "", "the bytes of each element instead"},
                       {"text", "", "an array of bytes as text"}};
const Options kStat = {{"recompute", "", "from the bytes, where the file holds these figures too"}};
const Options kHist = {{"bins", "N", "how many (20)"}};
const Options kVerify = {{"all", "", "every checkpoint of the folder, in a table"}};
const Options kDiff = {{"bitwise", "", "bytes count: -0.0 is not 0.0"},
                       {"atol", "X", "the same if |a - b| <= atol + rtol * |b| (0)"},
                       {"rtol", "X", "see --atol (0)"},
                       {"nan-equal", "", "a NaN is the same as a NaN"}};
const Options kPlot = {{"out", "FILE.svg", "where the image goes; otherwise to the standard output"},
                       {"bins", "N", "of hist (60)"},
                       {"title", "TEXT", "instead of the usual one"},
                       {"width", "N", "in pixels (720)"}};
const Options kConvert = {{"to", "FILE", "by suffix: .safetensors, .pt, .npz, .h5; must not exist yet"},
                          {"only", "PART", "model (the default: parameters and buffers), ema or all"},
                          {"rename", "FROM=TO", "names that begin with FROM begin with TO; may be repeated"}};
const Options kPrune = {{"keep", "N", "newest checkpoints to keep (3)"}, {"yes", "", "do it"}};
const Options kLineageOptions = {{"mermaid", "", "as a diagram for Markdown"}};

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> rows = {
      {"info", "FILE", 1, 1, "step, optimizer, sizes and origin on one screen", {}, info},
      {"ls", "FILE", 1, 1, "the arrays with type, shape and size", {}, list},
      {"tree", "FILE", 1, 1, "the same as a tree of modules; equal neighbours are folded", {}, tree},
      {"show", "FILE NAME[0:4,:,3]", 1, 2, "values of an array, or a group's attributes", kShow, show},
      {"stat", "FILE", 1, 1, "extremes, means, zeros and what is not finite, array by array", kStat, stat},
      {"hist", "FILE NAME", 1, 2, "a histogram on the terminal", kHist, hist},
      {"verify", "FILE...", 1, kAny, "checks every byte and names what is damaged", kVerify, verify},
      {"diff", "A B", 2, 2, "what differs between two files; 1 if anything does", kDiff, diff},
      {"hash", "FILE", 1, 1, "a digest of every array and of the state they make, in any format", {}, hash},
      {"plot", "KIND FILE...", 2, 3, "SVG: hist FILE NAME, norms FILE, updates A B, curves RUN", kPlot, plot},
      {"convert", "SRC", 1, 1, "writes arrays of any file for other programs", kConvert, convert},
      {"doctor", "DIR", 1, 1, "leftovers, bad checkpoints, pointer, lease, permissions, disk", {}, doctor},
      {"prune", "DIR", 1, 1, "what retention would delete and why; --yes deletes", kPrune, prune},
      {"lineage", "DIR", 1, 1, "which checkpoint came from which", kLineageOptions, lineage},
  };
  return rows;
}

}  // namespace lockstep::ckpt
