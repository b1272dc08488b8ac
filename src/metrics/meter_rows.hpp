// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstdint>

// The functions of the rows of the table of meters: see MeterRow::make and MeterRow::make_for_task.
namespace lockstep::metrics {

Meter top_k_meter(const Section& options, std::int64_t classes);
Meter confusion_meter(const Section& options, std::int64_t classes);
Meter overlap_meter(const Section& options, std::int64_t classes);
Meter perplexity_meter(const Section& options, std::int64_t classes);
Meter calibration_meter(const Section& options, std::int64_t classes);
Meter multilabel_meter(const Section& options, std::int64_t classes);
Meter probability_meter(const Section& options, std::int64_t classes);
Meter regression_meter(const Section& options, std::int64_t classes);
Meter regression_order_meter(const Section& options, std::int64_t classes);
Meter auroc_meter(const Section& options, std::int64_t classes);
Meter average_precision_meter(const Section& options, std::int64_t classes);
Meter reidentification_meter(const Section& options, std::int64_t classes);
Meter field_meter(const Section& options, const Task& task);
Meter persistence_meter(const Section& options, const Task& task);
Meter well_meter(const Section& options, const Task& task);
Meter spectral_meter(const Section& options, const Task& task);
Meter pdebench_meter(const Section& options, const Task& task);
Meter acc_meter(const Section& options, const Task& task);

/// A table of one row.
inline Table row_of(const std::string& name, const std::vector<double>& values) {
  return {.name = name, .columns = values.size(), .values = values};
}

}  // namespace lockstep::metrics
