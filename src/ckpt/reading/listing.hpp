// SPDX-License-Identifier: BSD-3-Clause
// What the commands share: opening what a path names, choosing arrays, printing.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "ckpt/reading/options.hpp"
#include "ckpt/reading/source.hpp"

namespace lockstep::ckpt {

using OrderedJson = nlohmann::ordered_json;

/// Opens what the path names.
/// @throws Failure  also when it names an array inside a file
InspectedFile open_source(const std::string& path);

/// A file, and an array in it that the words name as FILE NAME or FILE/NAME; with a slice where one is written.
struct ArrayArgument {
  InspectedFile source;
  const FileArray* info;
  std::string slice;
};
ArrayArgument open_array(const std::vector<std::string>& words);

/// The arrays that --filter lets pass, in the order of --sort; `by_default` where that is not given. Not cut to
/// --limit.
std::vector<const FileArray*> select(const InspectedFile& source, const Request& request,
                                     const std::string& by_default = "order");

/// --limit, or `otherwise`.
std::size_t limit_of(const Request& request, std::size_t otherwise);

/// "and 12 more" for what a limit left out, or "".
std::string rest_text(std::size_t shown, std::size_t all);

OrderedJson json_of(double value);  ///< a number, or "nan", "inf", "-inf"
OrderedJson json_of(const checkpoints::Attribute& value);
OrderedJson json_of(const FileArray& info);
std::string attribute_text(const checkpoints::Attribute& value);

void print(const std::string& text);
void print(const OrderedJson& document);

}  // namespace lockstep::ckpt
