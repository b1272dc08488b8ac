// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <fstream>

#include "ckpt/commands.hpp"
#include "ckpt/histogram.hpp"
#include "ckpt/listing.hpp"
#include "ckpt/locate.hpp"
#include "ckpt/text.hpp"
#include "ckpt/values.hpp"
#include "core/table.hpp"
#include "plot/bar_chart.hpp"
#include "plot/histogram_chart.hpp"
#include "plot/line_chart.hpp"

namespace lockstep::ckpt {

namespace {

constexpr std::size_t kRows = 40;
constexpr std::size_t kLines = 8;

/// An image and the figures that it shows.
struct Drawing {
  std::string svg;
  Json data;
};

std::string title_of(const Request& request, const std::string& usual) { return request.text("title", usual); }

int width_of(const Request& request) {
  return static_cast<int>(std::clamp<std::int64_t>(request.integer("width", 720, 200), 200, 10000));
}

/// "step 1250", or the file's name where it states no step.
std::string origin_of(const Source& source) {
  const auto& attributes = source.attributes("/");
  const auto step = attributes.find("step");
  if (step != attributes.end()) return "step " + attribute_text(step->second);
  return escaped(source.path().substr(source.path().rfind('/') + 1));
}

/// A long name without its middle.
std::string shortened(const std::string& name) {
  constexpr std::size_t kLongest = 44;
  const std::string safe = escaped(name);
  if (safe.size() <= kLongest) return safe;
  return safe.substr(0, 12) + "..." + safe.substr(safe.size() - (kLongest - 15));
}

/// What norms and updates are about: floating-point arrays, of the model alone unless --filter says otherwise.
std::vector<const ArrayInfo*> weights(const Source& source, const Request& request) {
  std::vector<const ArrayInfo*> chosen = select(source, request);
  std::erase_if(chosen, [&](const ArrayInfo* info) {
    const bool is_other = !request.has("filter") && source.is_own() && !info->path.starts_with("/model/params/");
    return is_other || !is_floating(info->dtype) || info->nbytes == 0;
  });
  if (chosen.empty()) throw Failure(Exit::not_found, escaped(source.path()) + ": the numeric array does not exist");
  return chosen;
}

/// Says what a limit left out.
std::string with_rest(const std::string& title, std::size_t shown, std::size_t all) {
  return shown < all ? fmt::format("{} ({} of {})", title, shown, all) : title;
}

Drawing draw_histogram(const Request& request, const std::vector<std::string>& words) {
  const NamedArray named = open_array(words);
  const auto bins = static_cast<std::size_t>(std::clamp<std::int64_t>(request.integer("bins", 60, 1), 1, 1000));
  const Histogram found = histogram_of(named.source.read(*named.info), bins);
  plot::HistogramChart chart{.title = title_of(request, shortened(named.info->label) + ", " + origin_of(named.source)),
                             .x_label = fmt::format("value ({})", name_of(named.info->dtype)),
                             .y_label = "elements",
                             .low = found.low,
                             .high = found.high,
                             .counts = found.counts};
  if (found.high > 0.5 * kLargestHalf) chart.marks.push_back({kLargestHalf, "float16's largest"});
  if (found.low < -0.5 * kLargestHalf) chart.marks.push_back({-kLargestHalf, "float16's lowest"});
  chart.width = width_of(request);
  Json data = json_of(*named.info);
  data["low"] = json_of(found.low);
  data["high"] = json_of(found.high);
  data["counts"] = found.counts;
  return {plot::histogram_chart(chart), data};
}

Drawing draw_norms(const Request& request, const std::vector<std::string>& words) {
  if (words.size() != 1) throw usage_error("usage: ckpt plot norms FILE");
  const Source source = open_source(words[0]);
  const auto chosen = weights(source, request);
  const std::size_t shown = std::min(chosen.size(), limit_of(request, kRows));
  plot::BarChart chart{
      .title = title_of(request, with_rest("Size of the weights, " + origin_of(source), shown, chosen.size())),
      .x_label = "magnitude of the values (no unit)",
      .kinds = {"root mean square", "largest"},
      .rows = {}};
  chart.log_x = true;
  chart.width = width_of(request);
  Json data = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const Statistics found = source.statistics(*chosen[i]);
    chart.rows.push_back({shortened(chosen[i]->label), {found.rms, absmax_of(found)}});
    data.push_back(
        {{"name", escaped(chosen[i]->label)}, {"rms", json_of(found.rms)}, {"absmax", json_of(absmax_of(found))}});
  }
  return {plot::bar_chart(chart), {{"file", escaped(source.path())}, {"rows", data}}};
}

/// rms(b - a) / rms(a); 0 where both are 0.
double change_of(const Array& a, const Array& b) {
  double change = 0.0;
  double size = 0.0;
  with_loader(a.dtype, [&](auto load) {
    for (std::int64_t i = 0; i < number_count(a); ++i) {
      const auto x = static_cast<double>(load(a.bytes.data(), i));
      const auto y = static_cast<double>(load(b.bytes.data(), i));
      change += (y - x) * (y - x);
      size += x * x;
    }
  });
  return change == 0.0 ? 0.0 : std::sqrt(change / size);
}

std::int64_t step_of(const Source& source) {
  const auto& attributes = source.attributes("/");
  const auto step = attributes.find("step");
  const bool is_known = step != attributes.end() && std::holds_alternative<std::int64_t>(step->second);
  return is_known ? std::get<std::int64_t>(step->second) : 0;
}

Drawing draw_updates(const Request& request, const std::vector<std::string>& words) {
  if (words.size() != 2) throw usage_error("usage: ckpt plot updates A B");
  const Source a = open_source(words[0]);
  const Source b = open_source(words[1]);
  const std::int64_t steps = std::max<std::int64_t>(1, std::abs(step_of(b) - step_of(a)));
  const auto chosen = weights(a, request);
  const std::size_t shown = std::min(chosen.size(), limit_of(request, kRows));
  plot::BarChart chart{.title = title_of(request, fmt::format("Updates from {} to {}", origin_of(a), origin_of(b))),
                       .x_label = fmt::format("rms of the change / rms of the weight, per step (over {})", steps),
                       .kinds = {"ratio"},
                       .rows = {}};
  chart.title = with_rest(chart.title, shown, chosen.size());
  chart.band = plot::Band{1e-4, 1e-2, "healthy range"};
  chart.log_x = true;
  chart.width = width_of(request);
  Json data = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const ArrayInfo& other = b.find(chosen[i]->path);
    if (other.dtype != chosen[i]->dtype || other.shape != chosen[i]->shape) {
      throw Failure(Exit::incompatible, escaped(other.path) + ": its type or shape differs between the two files");
    }
    const double ratio = change_of(a.read(*chosen[i]), b.read(other)) / static_cast<double>(steps);
    chart.rows.push_back({shortened(chosen[i]->label), {ratio}});
    data.push_back({{"name", escaped(chosen[i]->label)}, {"ratio_per_step", json_of(ratio)}});
  }
  return {plot::bar_chart(chart), {{"steps", steps}, {"rows", data}}};
}

Drawing draw_curves(const Request& request, const std::vector<std::string>& words) {
  if (words.size() != 1) throw usage_error("usage: ckpt plot curves RUN");
  const std::string directory = checkpoint_folder(words[0]);
  const auto all = saved_in(directory);
  if (all.empty()) throw Failure(Exit::not_found, escaped(directory) + ": it does not contain a checkpoint");
  plot::LineChart chart{.title = title_of(request, "Size of the weights over the run"),
                        .x_label = "step (optimizer updates)",
                        .y_label = "root mean square of the values",
                        .series = {}};
  chart.width = width_of(request);
  chart.log_y = true;
  Json data = Json::array();
  for (const Saved& saved : all) {
    const Source source = Source::open(saved.path);
    if (chart.series.empty()) {
      const auto chosen = weights(source, request);
      const std::size_t shown = std::min(chosen.size(), limit_of(request, kLines));
      for (std::size_t i = 0; i < shown; ++i) chart.series.push_back({chosen[i]->path, {}});
      chart.title = with_rest(chart.title, shown, chosen.size());
    }
    for (plot::Series& series : chart.series) {
      const double rms = source.statistics(source.find(series.name)).rms;
      series.points.push_back({static_cast<double>(saved.step), rms});
      data.push_back({{"step", saved.step}, {"name", escaped(label_of(series.name))}, {"rms", json_of(rms)}});
    }
  }
  for (plot::Series& series : chart.series) series.name = shortened(label_of(series.name));
  return {plot::line_chart(chart), {{"directory", escaped(directory)}, {"points", data}}};
}

struct Kind {
  std::string name;
  Drawing (*draw)(const Request& request, const std::vector<std::string>& words);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> rows = {
      {"hist", draw_histogram}, {"norms", draw_norms}, {"updates", draw_updates}, {"curves", draw_curves}};
  return rows;
}

}  // namespace

Exit plot(const Request& request) {
  const Kind& kind = find_row(kinds(), request.paths[0], "plot");
  const Drawing drawing = kind.draw(request, {request.paths.begin() + 1, request.paths.end()});
  const std::string out = request.text("out", "-");
  if (out != "-") {
    std::ofstream file(out, std::ios::binary);
    file << drawing.svg << std::flush;
    if (!file) throw Failure(Exit::io, escaped(out) + ": cannot be written");
  }
  if (request.wants_json()) {
    print(drawing.data);
  } else if (out == "-") {
    print(drawing.svg);
  }
  return Exit::ok;
}

}  // namespace lockstep::ckpt
