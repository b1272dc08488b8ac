// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/curve_charts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "core/text/parse_value.hpp"

namespace lockstep::report {

namespace {

constexpr std::size_t kMaxPoints = 800;
constexpr double kLogFrom = 20;  // the ratio of the largest value to the least from which an axis is logarithmic

struct Known {
  const char* key;
  const char* title;
  const char* label;
};

// Keys in the order of the page; evaluations' metrics come behind the loss.
constexpr std::array<Known, 11> kKnown = {{{"lr", "Learning rate", "lr"},
                                           {"grad_norm", "Norm of the gradients", "norm"},
                                           {"samples_per_second", "Throughput", "samples/s"},
                                           {"tokens_per_second", "Throughput in tokens", "tokens/s"},
                                           {"seconds_per_step", "Time of a step", "s"},
                                           {"data_wait", "Waiting for data", "fraction of the time"},
                                           {"loader_samples_per_second", "Speed of the loader threads", "samples/s"},
                                           {"loader_threads_needed", "Loader threads needed per rank", "threads"},
                                           {"memory_mb", "Peak memory of rank 0", "MB"},
                                           {"mfu", "Model FLOPs utilization", "fraction of the peak"},
                                           {"loss_scale", "Loss scale", "factor"}}};

constexpr std::array<const char*, 6> kHidden = {"epoch", "samples", "val/count", "train/samples", "loss", "val/loss"};

constexpr std::string_view kHostSection = "time/";
constexpr std::string_view kLoadSection = "load_ms/";
constexpr std::string_view kDeviceSection = "device_time/";

constexpr std::array<Known, 2> kOverRanks = {
    {{"data_seconds", "Waiting for data, by ranks", "s"}, {"step_seconds", "Time of a step, by ranks", "s"}}};

/// "data_seconds" of "data_seconds/max", where the mean over ranks is there, too; else "".
std::string over_ranks(const PageData& run, const std::string& key) {
  for (const std::string end : {"/max", "/mean", "/min"}) {
    if (!key.ends_with(end)) continue;
    std::string name = key.substr(0, key.size() - end.size());
    const bool is_whole = run.curve(name + "/max") != nullptr && run.curve(name + "/mean") != nullptr;
    return is_whole ? name : "";
  }
  return "";
}

/// The parts of the name of a metric of one predicted step, such as val/rmse@3/t2m.
struct RolloutName {
  std::string metric;
  double step = 0;
  std::string channel;
};
std::optional<RolloutName> rollout_name(const std::string& key) {
  const std::string_view prefix = "val/";
  const std::size_t sign = key.find('@');
  const std::size_t slash = key.find('/', std::min(sign, key.size()));
  if (!key.starts_with(prefix) || slash == std::string::npos) return std::nullopt;
  const auto step = parse_integer(key.substr(sign + 1, slash - sign - 1));
  if (!step) return std::nullopt;
  return RolloutName{.metric = key.substr(prefix.size(), sign - prefix.size()),
                     .step = static_cast<double>(*step),
                     .channel = key.substr(slash + 1)};
}

bool is_time(const PageData& run, const std::string& key) {
  return key.starts_with(kHostSection) || key.starts_with(kDeviceSection) || key.starts_with(kLoadSection) ||
         !over_ranks(run, key).empty();
}

/// "rmse [K]". @param unit  "" = unknown
std::string label_of(const std::string& metric, const std::string& unit) {
  return unit.empty() ? metric : metric + " [" + unit + "]";
}

plot::LineChart chart_named(const std::string& title, const std::string& label) {
  return {.title = title, .x_label = "step", .y_label = label, .series = {}, .width = kChartWidth, .height = 290};
}

bool wants_log(const plot::LineChart& chart) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const plot::Series& series : chart.series) {
    for (const plot::Point& point : series.points) {
      if (!std::isfinite(point.y)) continue;
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  return low > 0 && high / low >= kLogFrom;
}

/// Keeps at most about `max` points with the same highs and lows: of many neighbors the lowest and the highest stay,
/// and what is no number.
std::vector<plot::Point> thinned(const std::vector<plot::Point>& points, std::size_t max) {
  if (points.size() <= max) return points;
  const std::size_t stride = (2 * points.size() + max - 1) / max;  // two points stay of each
  std::vector<plot::Point> kept;
  for (std::size_t begin = 0; begin < points.size(); begin += stride) {
    const std::size_t end = std::min(begin + stride, points.size());
    std::size_t low = begin;
    std::size_t high = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[low].y) || points[i].y < points[low].y) low = i;
      if (!std::isfinite(points[high].y) || points[i].y > points[high].y) high = i;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
  }
  return kept;
}

/// The unit of a value in all runs that have it; "" if it is unknown or differs.
std::string common_unit(const std::vector<const PageData*>& runs, const std::string& key) {
  std::optional<std::string> common;
  for (const PageData* run : runs) {
    if (run->curve(key) == nullptr) continue;
    const auto found = run->artifacts.units.find(key);
    const std::string unit = found == run->artifacts.units.end() ? "" : found->second;
    if (common && *common != unit) return "";
    common = unit;
  }
  return common.value_or("");
}

class Charts {
 public:
  Charts(const std::vector<const PageData*>& runs, const std::vector<std::string>& names)
      : runs_(runs), names_(names) {}

  void add(plot::LineChart chart, const std::vector<std::pair<std::string, std::string>>& keys) {
    for (const auto& [key, name] : keys) {
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const plot::Series* const curve = runs_[i]->curve(key);
        if (curve == nullptr) continue;
        chart.series.push_back({name_of(i, name), thinned(curve->points, kMaxPoints)});
      }
      shown_.push_back(key);
    }
    if (chart.series.empty()) return;
    chart.log_y = wants_log(chart);
    charts_.push_back(std::move(chart));
  }

  /// Every other curve whose name begins with `prefix`.
  void add_others(const std::string& prefix) {
    for (const PageData* run : runs_) {
      for (const plot::Series& curve : run->curves) {
        const bool is_shown = std::find(shown_.begin(), shown_.end(), curve.name) != shown_.end();
        const bool is_hidden = std::find(kHidden.begin(), kHidden.end(), curve.name) != kHidden.end();
        if (is_shown || is_hidden || is_time(*run, curve.name) || !curve.name.starts_with(prefix)) continue;
        if (rollout_name(curve.name)) continue;
        if (curve.name.starts_with("train/") && run->curve("val/" + curve.name.substr(6)) != nullptr) continue;
        add_alone(curve.name);
      }
    }
  }

  /// A chart with what an evaluation and the training both measure in one chart.
  void add_alone(const std::string& key) {
    const std::string trained = key.starts_with("val/") ? "train/" + key.substr(4) : "";
    const bool has_both = std::any_of(runs_.begin(), runs_.end(),
                                      [&trained](const PageData* run) { return run->curve(trained) != nullptr; });
    const std::string unit = common_unit(runs_, key);
    if (!has_both) return add(chart_named(key, label_of(key, unit)), {{key, ""}});
    const std::string name = key.substr(4);
    add(chart_named(name, label_of(name, unit)), {{trained, "training"}, {key, "evaluation"}});
  }

  void add_sections(const std::string& title, std::string_view prefix) {
    std::vector<std::pair<std::string, std::string>> keys;
    for (const PageData* run : runs_) {
      for (const plot::Series& curve : run->curves) {
        if (!curve.name.starts_with(prefix) || !over_ranks(*run, curve.name).empty()) continue;
        const std::pair<std::string, std::string> key = {curve.name, curve.name.substr(prefix.size())};
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
      }
    }
    add(chart_named(title, "ms"), keys);
  }

  void add_over_ranks() {
    for (const PageData* run : runs_) {
      for (const plot::Series& curve : run->curves) {
        const std::string name = over_ranks(*run, curve.name);
        const bool is_shown = std::find(shown_.begin(), shown_.end(), curve.name) != shown_.end();
        if (name.empty() || is_shown) continue;
        const auto known =
            std::find_if(kOverRanks.begin(), kOverRanks.end(), [&name](const Known& k) { return name == k.key; });
        const plot::LineChart chart = known == kOverRanks.end() ? chart_named(name + ", by ranks", name)
                                                                : chart_named(known->title, known->label);
        add(chart, {{name + "/max", "largest"}, {name + "/mean", "mean"}, {name + "/min", "least"}});
      }
    }
  }

  std::vector<plot::LineChart> take() { return std::move(charts_); }

 private:
  std::string name_of(std::size_t run, const std::string& name) const {
    if (names_.size() < 2) return name;
    return names_[run] + (name.empty() ? "" : ", " + name);
  }

  const std::vector<const PageData*>& runs_;
  const std::vector<std::string>& names_;
  std::vector<std::string> shown_;
  std::vector<plot::LineChart> charts_;
};

}  // namespace

std::vector<plot::LineChart> curve_charts(const std::vector<const PageData*>& runs,
                                          const std::vector<std::string>& names) {
  Charts charts(runs, names);
  charts.add(chart_named("Loss", "loss"), {{"loss", "training"}, {"val/loss", "evaluation"}});
  charts.add_others("val/");
  for (const Known& known : kKnown) charts.add(chart_named(known.title, known.label), {{known.key, ""}});
  charts.add_others("");
  return charts.take();
}

std::vector<plot::LineChart> rollout_charts(const std::vector<const PageData*>& runs,
                                            const std::vector<std::string>& names) {
  const std::string persistence = "persistence_";
  std::vector<plot::LineChart> charts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const plot::Series& curve : runs[i]->curves) {
      const auto name = rollout_name(curve.name);
      if (!name) continue;
      const bool is_persistence = name->metric.starts_with(persistence);
      const std::string metric = is_persistence ? name->metric.substr(persistence.size()) : name->metric;
      const std::string title = name->channel + ": " + metric;
      auto chart = std::ranges::find(charts, title, &plot::LineChart::title);
      if (chart == charts.end()) {
        chart = charts.insert(chart, chart_named(title, label_of(metric, common_unit(runs, curve.name))));
        chart->x_label = "predicted step";
      }
      const std::string series = (names.size() < 2 ? "" : names[i] + ", ") + (is_persistence ? "persistence" : "model");
      auto line = std::ranges::find(chart->series, series, &plot::Series::name);
      if (line == chart->series.end()) line = chart->series.insert(line, {.name = series, .points = {}});
      if (line->points.empty() && name->step > 1) {  // a target of several steps, the first of which has no number
        const plot::Series* const first = runs[i]->curve("val/" + name->metric + "/" + name->channel);
        if (first != nullptr) line->points.push_back({1, first->points.back().y});
      }
      line->points.push_back({name->step, curve.points.back().y});
    }
  }
  return charts;
}

std::vector<plot::LineChart> time_charts(const std::vector<const PageData*>& runs,
                                         const std::vector<std::string>& names) {
  Charts charts(runs, names);
  charts.add_sections("Sections of a step", kHostSection);
  charts.add_sections("Sections of a step on the device", kDeviceSection);
  charts.add_sections("Loading a sample", kLoadSection);
  charts.add_over_ranks();
  return charts.take();
}

}  // namespace lockstep::report
