// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "ckpt/reading/source.hpp"
#include "core/text/text.hpp"

/// How names, sizes, values and answers are printed.
namespace lockstep::ckpt {

using OrderedJson = nlohmann::ordered_json;

/// Text from a file, safe on a terminal: control characters, characters that change the direction of writing, invalid
/// UTF-8 and the backslash become `\n`, `\x1B`, `\u202E`, `\\`.
std::string escaped(std::string_view text);

/// "999 B", "1.50 MiB".
std::string human_bytes(std::uint64_t bytes);
/// "1.50 MiB (1572864 bytes)".
std::string exact_bytes(std::uint64_t bytes);
/// Six significant digits: "0.125", "1e-09", "nan".
std::string number_text(double value);

/// "and 12 more" for what a limit left out, or "".
std::string rest_text(std::size_t shown, std::size_t all);

OrderedJson json_of(double value);  ///< a number, or "nan", "inf", "-inf"
OrderedJson json_of(const checkpoints::Attribute& value);
OrderedJson json_of(const FileArray& info);
std::string attribute_text(const checkpoints::Attribute& value);

void print(const std::string& text);
void print(const OrderedJson& document);

}  // namespace lockstep::ckpt
