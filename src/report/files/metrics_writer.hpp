// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace lockstep::report {

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

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace lockstep::report
