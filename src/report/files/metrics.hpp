// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::report {

/// One JSON object. A double is written so that it reads back to the same bits; JSON knows no NaN and no infinity, so
/// those become the strings "NaN", "Infinity" and "-Infinity".
/// @param indent  blanks per level, or -1 = everything on one line
std::string to_json(const NamedValues& values, int indent = -1);

/// The values that a metrics file holds under `key`, with their steps, in the order of its lines. Lines without the key
/// and a torn last line are skipped; "NaN" and the infinities come back as such.
/// @throws ConfigError  the file cannot be read
std::vector<std::pair<std::int64_t, double>> read_series(const std::string& path, const std::string& key);

/// Appends to a JSON-lines file: first a line `{"schema":"lockstep-metrics","version":1}`, then one object per line.
///
/// Each line is handed to the system at once, so another program may follow the file. For one rank only (the root).
class MetricsWriter {
 public:
  /// Opens the file, or begins it. Of an existing file a torn last line, which a crash left behind, is cut off.
  /// @throws ConfigError  the file cannot be opened, or is not a metrics file of this version
  explicit MetricsWriter(std::string path);

  /// @throws ConfigError  the line could not be written; the message has the reason
  void write(const Record& record);

  /// Drops the lines whose "step" lies beyond `step`, so that no step occurs twice after resuming. All others stay byte
  /// for byte.
  void truncate_after_step(std::int64_t step);

 private:
  void open();
  /// Makes the file contain `kept` instead of `text`, from which it has been made by removing lines.
  void keep(const std::string& kept, const std::string& text);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

/// Keeps a CSV table with a header and one row per evaluation; the file is replaced as a whole at each row.
class SummaryWriter {
 public:
  /// Continues with the table that is there.
  explicit SummaryWriter(std::string path);

  /// A name that the table lacks becomes a new last column, empty in the rows above.
  /// @throws ConfigError  the file cannot be written
  void write(const Record& record);

  /// Drops the rows whose column "step" lies beyond `step`.
  void truncate_after_step(std::int64_t step);

 private:
  void save() const;

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::report
