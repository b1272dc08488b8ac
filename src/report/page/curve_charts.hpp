// SPDX-License-Identifier: BSD-3-Clause
// Which curves of a run are drawn how.
#pragma once

#include <string>
#include <vector>

#include "plot/line_chart.hpp"
#include "report/page/run_data.hpp"

namespace lockstep::report {

/// Charts are drawn for a column of this many pixels, so that their texts can be read in a narrow window.
inline constexpr int kChartWidth = 400;

/// A chart for each quantity that any of the runs has: the losses together, then the other metrics of evaluations,
/// lr, norm of the gradients, throughput, and what else there is.
/// @param names  what the runs are called, for several
std::vector<plot::LineChart> curve_charts(const std::vector<const PageData*>& runs,
                                          const std::vector<std::string>& names);

/// Charts of metrics of single predicted steps (`val/rmse@3/t2m`), which curve_charts leaves out: for each metric and
/// channel, the values of the last evaluation over the steps of a rollout, together with those of persistence.
std::vector<plot::LineChart> rollout_charts(const std::vector<const PageData*>& runs,
                                            const std::vector<std::string>& names);

/// Charts of the sections of a step (`time/NAME` and `device_time/NAME`, in ms) and of what ranks differ in (`NAME/max`
/// with `NAME/mean` and `NAME/min` over ranks), which curve_charts leaves out.
std::vector<plot::LineChart> time_charts(const std::vector<const PageData*>& runs,
                                         const std::vector<std::string>& names);

}  // namespace lockstep::report
