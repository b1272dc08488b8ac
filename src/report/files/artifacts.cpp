// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/artifacts.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/text/text.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::report {

namespace {

using Json = nlohmann::ordered_json;

// A cell that is not finite becomes null: JSON knows no such number, and tables have no infinite ones.
Json json_of(const Table& table) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    if (i % std::max<std::size_t>(1, table.columns) == 0) rows.push_back(Json::array());
    rows.back().push_back(std::isfinite(table.values[i]) ? Json(table.values[i]) : Json());
  }
  Json json = {{"name", table.name}, {"step", table.step}, {"rows", rows}};
  if (!table.names.empty()) json["names"] = table.names;
  if (!table.title.empty()) json["title"] = table.title;
  return json;
}

Table table_of(const Json& json) {
  Table table{.name = json.at("name"), .step = json.at("step"), .columns = 0, .values = {}};
  for (const Json& row : json.at("rows")) {
    if (table.columns == 0) table.columns = row.size();
    if (row.empty() || row.size() != table.columns) throw std::invalid_argument("the rows have different lengths");
    for (const Json& cell : row) {
      table.values.push_back(cell.is_null() ? std::numeric_limits<double>::quiet_NaN() : cell.get<double>());
    }
  }
  if (json.contains("names")) table.names = json.at("names");
  if (json.contains("title")) table.title = json.at("title");
  return table;
}

Json json_of(const ColorScale& scale) {
  return {
      {"group", scale.group}, {"low", scale.low}, {"high", scale.high}, {"unit", scale.unit}, {"colors", scale.colors}};
}

ColorScale scale_of(const Json& json) {
  return {.group = json.at("group"),
          .low = json.at("low"),
          .high = json.at("high"),
          .unit = json.at("unit"),
          .colors = json.at("colors")};
}

Json json_of(const Base64Image& picture) {
  Json json = {{"name", picture.name},       {"step", picture.step},
               {"caption", picture.caption}, {"is_wrong", picture.is_wrong},
               {"height", picture.height},   {"width", picture.width},
               {"png", picture.png}};
  if (picture.scale) json["scale"] = json_of(*picture.scale);
  return json;
}

Base64Image picture_of(const Json& json) {
  Base64Image picture{.name = json.at("name"),
                      .step = json.at("step"),
                      .caption = json.at("caption"),
                      .is_wrong = json.at("is_wrong"),
                      .height = json.at("height"),
                      .width = json.at("width"),
                      .png = json.at("png")};
  if (json.contains("scale")) picture.scale = scale_of(json.at("scale"));
  return picture;
}

/// What `read` makes of the JSON in a file; none where the file does not exist.
/// @param content  what a report lacks without the file, for messages
template <class Read>
auto read_json(const std::string& path, const std::string& content, Read read) {
  const std::optional<std::string> text = read_text(path);
  std::optional<decltype(read(Json()))> result;
  if (!text) return result;
  try {
    result = read(Json::parse(*text));
  } catch (const std::exception&) {  // errors of JSON, rows of different lengths, or a kind that a chart lacks
    throw DataError(path, "damaged; delete it to omit " + content);
  }
  return result;
}

/// @param read  makes an item of its JSON
template <class Item>
std::vector<Item> read_items(const std::string& path, Item (*read)(const Json&)) {
  const auto read_all = [read](const Json& all) {
    std::vector<Item> items;
    for (const Json& item : all) items.push_back(read(item));
    return items;
  };
  return read_json(path, "its content", read_all).value_or(std::vector<Item>());
}

template <class Item>
void write_items(const std::string& path, const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) {
    text += (text.empty() ? "" : ",\n") + json_of(item).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  write_text(path, "[" + text + "]\n");
}

std::string tables_path(const std::string& folder) { return folder + "/tables.json"; }
std::string pictures_path(const std::string& folder) { return folder + "/pictures.json"; }
std::string units_path(const std::string& folder) { return folder + "/units.json"; }

using Units = std::map<std::string, std::string>;

Units read_units(const std::string& folder) {
  return read_json(units_path(folder), "the units of metrics", [](const Json& all) { return all.get<Units>(); })
      .value_or(Units());
}

std::string group_of(const std::string& name) { return name.substr(0, name.rfind('/') + 1); }

template <class Item>
void put_in(std::vector<Item>& items, Item item) {
  std::erase_if(items, [&item](const Item& known) {
    return known.name == item.name || (known.step != item.step && group_of(known.name) == group_of(item.name));
  });
  items.push_back(std::move(item));
}

/// The result of `read`; nothing if it fails.
auto readable(const auto& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error&) {
    return {};
  }
}

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

StepTimes step_times_of(const Json& json) {
  StepTimes times{.sentence = json.at("sentence"), .ranks = {}, .timeline = chart_of(json.at("timeline"))};
  for (const Json& rank : json.at("ranks_ms")) {
    times.ranks.emplace_back();
    for (const auto& [name, value] : rank.items()) times.ranks.back().push_back({name, value.get<double>()});
  }
  return times;
}

}  // namespace

Base64Image base64_image(const Picture& image, const EncodedImage& png) {
  return {.name = image.name,
          .step = image.step,
          .caption = image.caption,
          .is_wrong = image.is_wrong,
          .height = png.height,
          .width = png.width,
          .png = base64_of(png.bytes),
          .scale = image.scale};
}

Artifacts read_artifacts(const std::string& folder) {
  return {read_items(tables_path(folder), table_of), read_items(pictures_path(folder), picture_of), read_units(folder)};
}

ArtifactsWriter::ArtifactsWriter(std::string folder)
    : folder_(std::move(folder)),
      held_{readable([&] { return read_items(tables_path(folder_), table_of); }),
            readable([&] { return read_items(pictures_path(folder_), picture_of); }),
            readable([&] { return read_units(folder_); })} {}

void ArtifactsWriter::put(Table table) {
  put_in(held_.tables, std::move(table));
  has_new_tables_ = true;
}

void ArtifactsWriter::put(Base64Image picture) {
  put_in(held_.pictures, std::move(picture));
  has_new_pictures_ = true;
}

void ArtifactsWriter::put_units(const std::vector<std::pair<std::string, std::string>>& units) {
  for (const auto& [name, unit] : units) {
    std::string& known = held_.units[utf8_text(name)];
    has_new_units_ = has_new_units_ || known != utf8_text(unit);
    known = utf8_text(unit);
  }
}

void ArtifactsWriter::save() {
  if (std::exchange(has_new_units_, false)) {
    write_text(units_path(folder_), Json(held_.units).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (std::exchange(has_new_tables_, false)) write_items(tables_path(folder_), held_.tables);
  if (std::exchange(has_new_pictures_, false)) write_items(pictures_path(folder_), held_.pictures);
}

void ArtifactsWriter::truncate_after_step(std::int64_t step) {
  const auto is_later = [step](const auto& item) { return item.step > step; };
  has_new_tables_ = std::erase_if(held_.tables, is_later) > 0 || has_new_tables_;
  has_new_pictures_ = std::erase_if(held_.pictures, is_later) > 0 || has_new_pictures_;
  save();
}

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
  return read_json(folder + "/ddp.json", "the times of a step", step_times_of);
}

}  // namespace lockstep::report
