// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/metrics_writer.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/text/text.hpp"
#include "report/files/metrics.hpp"
#include "report/files/run_files.hpp"
#include "report/files/text_file.hpp"

namespace lockstep::report {

namespace {

const std::string kSchemaLine = R"({"schema":"lockstep-metrics","version":1})"
                                "\n";

/// The step that a line is about; none for the schema line and for what is no JSON.
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find("step");
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

}  // namespace

MetricsWriter::MetricsWriter(std::string path) : path_(std::move(path)) {
  const std::string text = read_text(path_).value_or("");
  const std::string whole = whole_lines(text);
  if (!whole.empty() && !whole.starts_with(kSchemaLine)) {
    throw ConfigError(path_ + " is not a metrics file that this version can continue; choose another run.dir");
  }
  if (whole.empty() || whole.size() != text.size()) write_text(path_, whole.empty() ? kSchemaLine : whole);
  open();
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
  std::string kept;
  for (const std::string& line : lines_in(read_text(path_).value_or(""))) {
    const std::optional<std::int64_t> of_line = step_of(line);
    if (!of_line || *of_line <= step) kept += line + "\n";
  }
  write_text(path_, kept);
  open();
}

}  // namespace lockstep::report
