// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/step_times.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include "report/files/run_files.hpp"
#include "report/files/text_file.hpp"

namespace lockstep::report {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const plot::TimelineChart& chart) {
  Json kinds = Json::array();
  for (const plot::BarKind& kind : chart.kinds) kinds.push_back({{"name", kind.name}, {"is_thin", kind.is_thin}});
  Json rows = Json::array();
  for (const plot::TimelineRow& row : chart.rows) {
    Json bars = Json::array();
    for (const plot::Bar& bar : row.bars) bars.push_back(Json::array({bar.begin, bar.end, bar.kind}));
    rows.push_back({{"name", row.name}, {"bars", bars}});
  }
  return {{"title", chart.title}, {"x_label", chart.x_label}, {"end", chart.end}, {"kinds", kinds}, {"rows", rows}};
}

plot::TimelineChart chart_of(const Json& json) {
  plot::TimelineChart chart{
      .title = json.at("title"), .x_label = json.at("x_label"), .end = json.at("end"), .kinds = {}, .rows = {}};
  for (const Json& kind : json.at("kinds")) chart.kinds.push_back({kind.at("name"), kind.at("is_thin")});
  for (const Json& row : json.at("rows")) {
    plot::TimelineRow read{.name = row.at("name"), .bars = {}};
    for (const Json& bar : row.at("bars")) {
      read.bars.push_back({bar.at(0).get<double>(), bar.at(1).get<double>(), bar.at(2).get<std::size_t>()});
      chart.kinds.at(read.bars.back().kind);  // throws where there is none
    }
    chart.rows.push_back(std::move(read));
  }
  return chart;
}

}  // namespace

void write_step_times(const std::string& folder, const StepTimes& times) {
  Json ranks = Json::array();
  for (const auto& parts : times.ranks) {
    Json rank = Json::object();
    for (const StepTimes::TimedPart& part : parts) rank[part.name] = part.milliseconds;
    ranks.push_back(std::move(rank));
  }
  const Json all = {{"sentence", times.sentence}, {"ranks_ms", ranks}, {"timeline", json_of(times.timeline)}};
  write_text(folder + "/ddp.json", all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<StepTimes> read_step_times(const std::string& folder) {
  const std::string path = folder + "/ddp.json";
  const std::optional<std::string> text = read_text(path);
  if (!text) return std::nullopt;
  try {
    const Json all = Json::parse(*text);
    StepTimes times{.sentence = all.at("sentence"), .ranks = {}, .timeline = chart_of(all.at("timeline"))};
    for (const Json& rank : all.at("ranks_ms")) {
      times.ranks.emplace_back();
      for (const auto& [name, value] : rank.items()) times.ranks.back().push_back({name, value.get<double>()});
    }
    return times;
  } catch (const std::exception&) {  // errors of JSON, or a kind that the chart lacks
    throw DataError(path, "damaged; delete it to omit the times of a step");
  }
}

}  // namespace lockstep::report
