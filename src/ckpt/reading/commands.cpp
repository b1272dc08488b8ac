// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/commands.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <cmath>
#include <new>

#include "ckpt/reading/text.hpp"
#include "core/system/home_path.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"

namespace lockstep::ckpt {

namespace po = boost::program_options;

namespace {

[[noreturn]] void throw_unknown(const std::string& word, const std::vector<CommandOption>& options) {
  const std::string name = word.substr(word.find_first_not_of('-'));
  const std::string near = nearest_name(name.substr(0, name.find('=')), names_of(options));
  throw usage_error("option '" + escaped(word) + "' is unknown; " +
                    (near.empty() ? "see --help" : "did you mean '--" + near + "'?"));
}

// --- the table ---

using Options = std::vector<CommandOption>;

constexpr std::size_t kAny = 1000;

const CommandOption kFilter = {
    "filter", "PATTERN", "Only arrays with matching names: a glob pattern, or /regular expression/. May be repeated"};
const CommandOption kSort = {"sort", "KEY", "Sort by size, name, norm, or order (default: order in the file)"};
const CommandOption kLimit = {"limit", "N", "Maximum number of lines"};
const Options kArrays = {kFilter, kSort, kLimit};
const Options kShow = {{"precision", "N", "Significant digits (default 6)"},
                       {"hex", "", "Print the bytes of each element"},
                       {"text", "", "Print an array of bytes as text"},
                       {"limit", "N", "Maximum number of elements"}};
const Options kStat = {
    {"recompute", "", "Compute the statistics from the data even if the file contains them"}, kFilter, kSort, kLimit};
const Options kHist = {{"bins", "N", "Number of bins (default 20)"}};
const Options kVerify = {{"all", "", "Verify all checkpoints of the folder and print a table"}};
const Options kDiff = {{"bitwise", "", "Compare bytes, so that -0.0 differs from 0.0"},
                       {"atol", "X", "Elements are equal if |a - b| <= atol + rtol * |b| (default 0)"},
                       {"rtol", "X", "See --atol (default 0)"},
                       {"nan-equal", "", "NaN equals NaN"},
                       kFilter,
                       kLimit};
const Options kHash = {kFilter, kLimit};
const Options kConvert = {
    {"to", "PATH", "Output file: .safetensors, .pt, .npz or .h5; --as timm: a folder. It must not exist"},
    {"as", "LIBRARY", "Write what timm (a folder) or torchvision (.pth or .safetensors) loads strictly"},
    {"only", "PART", "model (default: parameters and buffers), ema, all, or optimizer; --as: model, ema (default)"},
    {"dtype", "TYPE", "Convert real numbers to float32, float64, float16 or bfloat16"},
    {"class-names", "FILE", "Class names for --as, one per line; default: those of the checkpoint"},
    {"rename", "FROM=TO", "Replace the prefix FROM of names by TO; re:FROM=TO: of a regular expression. Repeatable"},
    kFilter};
const Options kPrune = {{"keep", "N", "Number of latest checkpoints to keep (default 3)"},
                        {"yes", "", "Delete the listed checkpoints"}};
const CommandOption kToFolder = {"to", "DIR", "Folder in which the new checkpoint is written as step-<step>"};
const Options kCast = {kToFolder, {"dtype", "TYPE", "float32, float64, float16 or bfloat16 (default)"}};
const Options kEdit = {
    kToFolder, {"set", "NAME=VALUE", "Set an attribute, such as run_id=x or /sched/0@first_step=0. May be repeated"}};
const Options kLineageOptions = {{"mermaid", "", "Print a Mermaid diagram for Markdown"}};

/// @param words  the last one ends with "..." if more can follow
CkptCommand command_row(std::string name, std::string help, std::vector<std::string> words,
                        Exit (*run)(const Request& request), Options options = {}, std::size_t optional_words = 0) {
  const std::size_t more_words = words.back().ends_with("...") ? kAny : 0;
  return {{.name = std::move(name),
           .help = std::move(help),
           .words = std::move(words),
           .optional_words = optional_words,
           .more_words = more_words,
           .options = std::move(options)},
          run};
}

}  // namespace

Exit exit_code_of(const std::exception& error) {
  static const std::map<CheckpointFault, Exit> kCodes = {
      {CheckpointFault::damaged, Exit::corrupt},           {CheckpointFault::io, Exit::io},
      {CheckpointFault::missing, Exit::not_found},         {CheckpointFault::other_kind, Exit::usage},
      {CheckpointFault::incompatible, Exit::incompatible}, {CheckpointFault::refused, Exit::refused}};
  if (const auto* const failure = dynamic_cast<const Failure*>(&error)) return failure->code();
  if (const auto* const fault = dynamic_cast<const CheckpointError*>(&error)) return kCodes.at(fault->fault());
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return Exit::usage;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return Exit::io;
  return Exit::internal;
}

std::string Request::text(const std::string& option, const std::string& otherwise) const {
  const auto found = values_.find(option);
  return found == values_.end() ? otherwise : found->second.back();
}

const std::vector<std::string>& Request::texts(const std::string& option) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(option);
  return found == values_.end() ? kNone : found->second;
}

std::int64_t Request::integer(const std::string& option, std::int64_t otherwise, std::int64_t min) const {
  if (!has(option)) return otherwise;
  const auto value = parse_integer(text(option));
  if (!value || *value < min) {
    throw usage_error("--" + option + " " + escaped(text(option)) + ": an integer >= " + std::to_string(min) +
                      " is required");
  }
  return *value;
}

double Request::real(const std::string& option, double otherwise) const {
  if (!has(option)) return otherwise;
  const auto value = parse_real(text(option));
  if (!value || !std::isfinite(*value) || *value < 0) {
    throw usage_error("--" + option + " " + escaped(text(option)) + ": a number >= 0 is required");
  }
  return *value;
}

const std::vector<CommandOption>& common_options() {
  static const std::vector<CommandOption> rows = {
      {"json", "", "Print one JSON document"},
      {"help", "", "Print this page"},
  };
  return rows;
}

Request parse(const std::vector<std::string>& words, const std::vector<CommandOption>& options) {
  using namespace po::command_line_style;
  po::options_description all;
  for (const CommandOption& option : options) {
    if (option.value.empty()) {
      all.add_options()(option.name.c_str(), "");
    } else {
      all.add_options()(option.name.c_str(), po::value<std::string>());
    }
  }
  Request request;
  try {
    const auto parsed =
        po::command_line_parser(words).options(all).style(unix_style & ~allow_guessing).allow_unregistered().run();
    for (const po::option& option : parsed.options) {
      if (option.unregistered) throw_unknown(option.original_tokens.at(0), options);
      if (option.position_key >= 0) {
        request.paths.push_back(with_home(option.value.at(0)));
      } else {
        request.set(option.string_key, option.value.empty() ? "" : with_home(option.value[0]));
      }
    }
  } catch (const po::error& error) {
    throw usage_error(escaped(error.what()));
  }
  return request;
}

const std::vector<CkptCommand>& commands() {
  static const std::vector<CkptCommand> rows = {
      command_row("info", "Prints step, optimizer, sizes and origin of a checkpoint", {"FILE"}, info),
      command_row("ls", "Lists the arrays with type, shape and size", {"FILE"}, list, kArrays),
      command_row("tree", "Lists the arrays as a tree of modules; consecutive equal modules are folded", {"FILE"}, tree,
                  kArrays),
      command_row("show", "Prints the values of an array, or the attributes of a group", {"FILE", "NAME[0:4,:,3]"},
                  show, kShow, 1),
      command_row("stat", "Prints minimum, maximum, mean, number of zeros and of non-finite elements of each array",
                  {"FILE"}, stat, kStat),
      command_row("hist", "Prints a histogram of an array", {"FILE", "NAME"}, hist, kHist, 1),
      command_row("verify", "Verifies every byte and reports damaged arrays", {"FILE..."}, verify, kVerify),
      command_row("diff", "Compares two files; exits with 1 if they differ", {"A", "B"}, diff, kDiff),
      command_row("hash", "Prints a digest of each array and of the whole state, independent of the file format",
                  {"FILE"}, hash, kHash),
      command_row("convert", "Converts a file to .safetensors, .pt, .npz or .h5, or for timm or torchvision", {"SRC"},
                  convert, kConvert),
      command_row("average", "Writes the last checkpoint with the average of the models of all checkpoints",
                  {"A", "B..."}, average, {kToFolder}),
      command_row("cast", "Writes a checkpoint with the model in another floating-point type", {"FILE"}, cast, kCast),
      command_row("edit", "Writes a checkpoint with other attributes", {"FILE"}, edit, kEdit),
      command_row("doctor", "Checks a run for stale files, damaged checkpoints, lease, permissions and disk space",
                  {"DIR"}, doctor),
      command_row("prune", "Prints which checkpoints the retention rules would delete, and why; --yes deletes them",
                  {"DIR"}, prune, kPrune),
      command_row("lineage", "Prints from which checkpoints a run was resumed", {"DIR"}, lineage, kLineageOptions),
  };
  return rows;
}

}  // namespace lockstep::ckpt
