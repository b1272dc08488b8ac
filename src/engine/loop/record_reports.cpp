// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/record_reports.hpp"

namespace lockstep::engine {

void RecordReports::report(const Record& record, std::int64_t step, bool is_root) {
  if (record.kind == "eval") {
    if (measured_.step != step) measured_ = {.step = step, .values = {}};
    for (const auto& [name, value] : record.values) {
      if (const double* const real = std::get_if<double>(&value)) measured_.values.emplace_back(name, *real);
    }
  }
  if (!is_root) return;
  for (const Reporter& reporter : reporters_) reporter(record);
}

}  // namespace lockstep::engine
