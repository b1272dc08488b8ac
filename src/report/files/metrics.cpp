// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/metrics.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

#include "core/text/text.hpp"

namespace lockstep::report {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const NamedValue& value) {
  if (const auto* const number = std::get_if<double>(&value)) {
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    return *number;
  }
  if (const auto* const count = std::get_if<std::int64_t>(&value)) return *count;
  return utf8_text(std::get<std::string>(value));
}

}  // namespace

std::string to_json(const NamedValues& values, int indent) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[utf8_text(name)] = json_of(value);
  return object.dump(indent);
}

}  // namespace lockstep::report
