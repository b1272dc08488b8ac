// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/record_reports.hpp"

#include <lockstep/core/error.hpp>

#include <set>

namespace lockstep::engine {

/// Every record may state its step and epoch.
void RecordReports::require_own_names(const Record& record) {
  std::set<std::string> names;
  for (const auto& [name, value] : record.values) {
    const bool is_place = name == "step" || name == "epoch";
    const std::string& kind = is_place ? record.kind : kinds_.emplace(name, record.kind).first->second;
    if (names.insert(name).second && kind == record.kind) continue;
    throw ConfigError("two values of the log have the name '" + name +
                      "'; a hook, step, model or meter of this program must choose another name");
  }
}

void RecordReports::report(const Record& record, std::int64_t step, bool is_root) {
  require_own_names(record);
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
