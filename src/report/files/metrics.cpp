// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/metrics.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_files.hpp"
#include "report/files/run_files.hpp"

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

/// A value that is no object where the line is no JSON.
Json parsed(const std::string& line) { return Json::parse(line, nullptr, /*allow_exceptions=*/false); }

const std::string kSchemaLine = R"({"schema":"lockstep-metrics","version":1})"
                                "\n";

/// The step that a line is about; none for the schema line and for what is no JSON.
std::optional<std::int64_t> step_of(const Json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return std::nullopt;
  return line["step"].get<std::int64_t>();
}

/// The same of its text. Lines of this program begin with the step, so that few lines of a long file are parsed.
std::optional<std::int64_t> step_of_text(std::string_view line) {
  constexpr std::string_view kBegin = R"({"step":)";
  const std::size_t end = line.find_first_of(",}", kBegin.size());
  if (line.starts_with(kBegin) && end != std::string_view::npos) {
    const auto step = parse_integer(std::string(line.substr(kBegin.size(), end - kBegin.size())));
    if (step) return step;
  }
  return step_of(parsed(std::string(line)));
}

using Cells = std::vector<std::string>;

std::string cell_of(const NamedValue& value) {
  if (const auto* const number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* const count = std::get_if<std::int64_t>(&value)) return std::to_string(*count);
  return std::get<std::string>(value);
}

}  // namespace

std::string to_json(const NamedValues& values, int indent) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[utf8_text(name)] = json_of(value);
  return object.dump(indent);
}

std::vector<std::pair<std::int64_t, double>> read_series(const std::string& path, const std::string& key) {
  const std::optional<std::string> text = read_text(path);
  if (!text) throw ConfigError(path + " cannot be read: No such file or directory");
  std::vector<std::pair<std::int64_t, double>> series;
  for (const std::string& line : lines_in(*text)) {
    const Json object = parsed(line);
    const std::optional<std::int64_t> step = step_of(object);
    if (!step || !object.contains(key)) continue;
    const Json& value = object[key];
    if (!value.is_number() && !value.is_string()) continue;
    const double number =
        value.is_number() ? value.get<double>() : parse_any_real(value.get<std::string>()).value_or(0);
    series.emplace_back(*step, number);
  }
  return series;
}

MetricsWriter::MetricsWriter(std::string path) : path_(std::move(path)) {
  const std::string text = read_text(path_).value_or("");
  const std::string whole = whole_lines(text);
  if (!whole.empty() && !whole.starts_with(kSchemaLine)) {
    throw ConfigError(path_ + " is not a metrics file that this version can continue; choose another run.dir");
  }
  if (whole.empty()) {
    write_text(path_, kSchemaLine);
  } else {
    keep(whole, text);
  }
  open();
}

/// A file that only becomes shorter needs no space, which can be lacking when a run continues.
void MetricsWriter::keep(const std::string& kept, const std::string& text) {
  if (!text.starts_with(kept)) return write_text(path_, kept);
  if (kept.size() == text.size()) return;
  std::error_code error;
  std::filesystem::resize_file(path_, kept.size(), error);
  if (error) throw ConfigError(path_ + " cannot be written: " + error.message());
}

void MetricsWriter::open() {
  file_.reset(std::fopen(path_.c_str(), "ae"));
  if (!file_) throw ConfigError(path_ + " cannot be opened: " + std::strerror(errno));
}

void MetricsWriter::write(const Record& record) {
  const std::string text = to_json(record.values) + "\n";
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!is_written || std::fflush(file_.get()) != 0)
    throw ConfigError(path_ + " cannot be written: " + std::strerror(errno));
}

void MetricsWriter::truncate_after_step(std::int64_t step) {
  const std::string text = read_text(path_).value_or("");
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const std::optional<std::int64_t> of_line = step_of_text(line);
    if (!of_line || *of_line <= step) kept += line;
    begin = end;
  }
  keep(kept, text);
  open();
}

SummaryWriter::SummaryWriter(std::string path) : path_(std::move(path)) {
  rows_ = parse_csv(read_text(path_).value_or(""));
  if (rows_.empty()) return;
  columns_ = std::move(rows_.front());
  rows_.erase(rows_.begin());
  for (Cells& row : rows_) row.resize(columns_.size());
}

void SummaryWriter::write(const Record& record) {
  Cells cells(columns_.size());
  for (const auto& [name, value] : record.values) {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    const auto column = static_cast<std::size_t>(found - columns_.begin());
    if (found == columns_.end()) {
      columns_.push_back(name);
      cells.emplace_back();
    }
    cells[column] = cell_of(value);
  }
  rows_.push_back(std::move(cells));
  for (Cells& earlier : rows_) earlier.resize(columns_.size());
  save();
}

void SummaryWriter::truncate_after_step(std::int64_t step) {
  const auto column = static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), "step") - columns_.begin());
  if (column == columns_.size()) return;
  std::erase_if(rows_, [column, step](const Cells& row) { return parse_integer(row[column]).value_or(step) > step; });
  save();
}

void SummaryWriter::save() const {
  std::string text = csv_record(columns_);
  for (const Cells& row : rows_) text += csv_record(row);
  write_text(path_, text);
}

}  // namespace lockstep::report
