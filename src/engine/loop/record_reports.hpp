// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <utility>
#include <vector>

namespace lockstep::engine {

/// The receivers of the records of a run.
class RecordReports {
 public:
  void add(Reporter reporter) { reporters_.push_back(std::move(reporter)); }
  /// Every rank remembers the numbers of records of kind "eval"; every reporter of rank 0 receives the record.
  /// @param step  after which it is reported
  void report(const Record& record, std::int64_t step, bool is_root);
  /// The values of the latest evaluation.
  const Measured& measured() const noexcept { return measured_; }

 private:
  std::vector<Reporter> reporters_;
  Measured measured_;
};

}  // namespace lockstep::engine
