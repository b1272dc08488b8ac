// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The receivers of the records of a run.
class RecordReports {
 public:
  void add(Reporter reporter) { reporters_.push_back(std::move(reporter)); }
  /// Every rank checks the names and remembers the numbers of records of kind "eval"; every reporter of rank 0 receives
  /// the record.
  /// @param step  after which it is reported
  /// @throws ConfigError  two values have the same name, in this record or in records of two kinds
  void report(const Record& record, std::int64_t step, bool is_root);
  /// The values of the latest evaluation.
  const Measured& measured() const noexcept { return measured_; }

 private:
  void require_own_names(const Record& record);

  std::vector<Reporter> reporters_;
  std::map<std::string, std::string> kinds_;  // the kind of record that has a value, by the value's name
  Measured measured_;
};

}  // namespace lockstep::engine
