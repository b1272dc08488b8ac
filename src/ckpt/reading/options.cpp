// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/options.hpp"

#include <lockstep/core/keys.hpp>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include <charconv>
#include <cmath>

#include "ckpt/reading/failure.hpp"
#include "ckpt/reading/text.hpp"
#include "core/system/home_path.hpp"
#include "core/text/parse_value.hpp"

namespace lockstep::ckpt {

namespace po = boost::program_options;

namespace {

[[noreturn]] void throw_unknown(const std::string& word, const std::vector<CommandOption>& options) {
  std::vector<std::string> names;
  for (const CommandOption& option : options) names.push_back(option.name);
  const std::string name = word.substr(word.find_first_not_of('-'));
  const std::string near = nearest_name(name.substr(0, name.find('=')), names);
  throw usage_error("option '" + escaped(word) + "' is unknown; " +
                    (near.empty() ? "see --help" : "did you mean '--" + near + "'?"));
}

}  // namespace

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
      {"filter", "PATTERN",
       "Only arrays with matching names: a glob pattern, or /regular expression/. May be repeated"},
      {"sort", "KEY", "Sort by size, name, norm, or order (default: order in the file)"},
      {"limit", "N", "Maximum number of lines"},
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

}  // namespace lockstep::ckpt
