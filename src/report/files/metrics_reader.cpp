// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/metrics_reader.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <optional>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "report/files/text_file.hpp"

namespace lockstep::report {

std::vector<std::pair<std::int64_t, double>> read_series(const std::string& path, const std::string& key) {
  const std::optional<std::string> text = read_text(path);
  if (!text) throw ConfigError(path + " cannot be read: No such file or directory");
  std::vector<std::pair<std::int64_t, double>> series;
  for (const std::string& line : lines_in(*text)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains(key) || !object.contains("step")) continue;
    const auto& value = object[key];
    if (!object["step"].is_number_integer() || (!value.is_number() && !value.is_string())) continue;
    const double number =
        value.is_number() ? value.get<double>() : parse_any_real(value.get<std::string>()).value_or(0);
    series.emplace_back(object["step"].get<std::int64_t>(), number);
  }
  return series;
}

}  // namespace lockstep::report
