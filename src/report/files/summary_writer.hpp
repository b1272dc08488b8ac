// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::report {

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
