// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/data_text.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "core/text/text.hpp"
#include "data/rows/row_dataset.hpp"
#include "data/source/roles.hpp"
#include "trainer/commands/table_text.hpp"
#include "trainer/data/field_text.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kListed = 20;            // duplicates in the text
constexpr std::size_t kMaxClassRows = 100;     // classes in the text
constexpr std::int64_t kMaxShownTokens = 256;  // maximum number of tokens shown of the first window

std::string spread_text(const Spread& spread, int digits) {
  return fmt::format("{:.{}f} / {:.{}f} / {:.{}f}", spread.min, digits, spread.median, digits, spread.max, digits);
}

Json json_of(const Spread& spread) { return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}}; }

std::string class_name(const std::vector<std::string>& names, std::size_t c) {
  return c < names.size() ? names[c] : std::to_string(c);
}

std::string joined_numbers(const std::vector<std::int64_t>& numbers, const std::string& between) {
  std::vector<std::string> words;
  for (const std::int64_t number : numbers) words.push_back(std::to_string(number));
  return joined(words, between);
}

/// "JPEG 400, PNG 3"
template <class Counts>
std::string counts_text(const Counts& counts) {
  std::vector<std::string> words;
  for (const auto& [value, count] : counts) words.push_back(fmt::format("{} {}", value, count));
  return words.empty() ? "-" : joined(words);
}

/// A map with numbers as keys, of which JSON has only texts.
Json json_of(const std::map<int, std::int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [value, count] : counts) json[std::to_string(value)] = count;
  return json;
}

std::string split_table(const DataReport& report) {
  std::vector<std::vector<std::string>> rows = {{"split"},  {"images"},  {"MB"},       {"height"},     {"width"},
                                                {"aspect"}, {"formats"}, {"channels"}, {"orientation"}};
  for (const ImageSurvey& split : report.splits) {
    const std::vector<std::string> column = {split.split,
                                             std::to_string(split.images),
                                             fmt::format("{:.1f}", static_cast<double>(split.bytes) / 1e6),
                                             spread_text(split.height, 0),
                                             spread_text(split.width, 0),
                                             spread_text(split.aspect, 2),
                                             counts_text(split.formats),
                                             counts_text(split.channels),
                                             counts_text(split.orientations)};
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(column[i]);
  }
  return table_text(rows);
}

std::string class_table(const DataReport& report) {
  std::vector<std::vector<std::string>> rows = {{"class"}};
  std::size_t classes = 0;
  for (const ImageSurvey& split : report.splits) {
    rows.front().push_back(split.split);
    classes = std::max(classes, split.images_of_class.size());
  }
  for (std::size_t c = 0; c < std::min(classes, kMaxClassRows); ++c) {
    rows.push_back({class_name(report.class_names, c)});
    for (const ImageSurvey& split : report.splits) {
      const bool is_counted = c < split.images_of_class.size();
      rows.back().push_back(std::to_string(is_counted ? split.images_of_class[c] : 0));
    }
  }
  if (classes == 0) return "";
  std::string text = "\n" + table_text(rows);
  if (classes > kMaxClassRows) text += fmt::format("\n({} more classes)", classes - kMaxClassRows);
  return text + "\n";
}

std::string statistics_text(const data::ChannelStatistics& statistics) {
  const auto text = [](const std::vector<double>& values) {
    std::vector<std::string> words;
    for (const double value : values) words.push_back(fmt::format("{:.4f}", value));
    return joined(words, ",");
  };
  return "training images: mean=" + text(statistics.mean) + ",std=" + text(statistics.std);
}

std::string duplicates_text(const DataReport& report) {
  if (report.duplicates.empty()) return "no image occurs twice";
  const auto across = std::count_if(report.duplicates.begin(), report.duplicates.end(),
                                    [](const Duplicate& each) { return each.first_split != each.second_split; });
  std::string text = fmt::format("{} images have the same bytes as another image, {} of them in another split",
                                 report.duplicates.size(), across);
  for (std::size_t i = 0; i < std::min(kListed, report.duplicates.size()); ++i) {
    const Duplicate& each = report.duplicates[i];
    text += fmt::format("\n  {} {} = {} {}", each.first_split, report.duplicate_names[i].first, each.second_split,
                        report.duplicate_names[i].second);
  }
  if (report.duplicates.size() > kListed) text += "\n  ...";
  return text;
}

std::string bad_text(const DataReport& report) {
  std::string text;
  for (const ImageSurvey& split : report.splits) {
    for (const BadImage& bad : split.bad) text += "\nbad: " + bad.place + ": " + bad.fault;
  }
  if (!text.empty()) return text;
  return report.is_decoded ? "\nall images can be decoded" : "\nall headers can be read (--check decodes the images)";
}

// ---- Data sets without image files. ----

std::vector<std::int64_t> first_window(const data::Dataset& dataset) {
  const std::vector<batch::Draw> draws = batch::draws_in_order(0, 1);
  const batch::Batch batch = dataset.get(draws);
  const at::Tensor tokens = batch.input().contiguous();
  const auto* const values = tokens.const_data_ptr<std::int64_t>();
  return {values, values + std::min(tokens.numel(), kMaxShownTokens)};
}

/// The characters of tokens that number the distinct bytes of a file.
std::string characters_of(const std::vector<std::int64_t>& tokens, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::set<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<unsigned char> alphabet(bytes.begin(), bytes.end());
  std::sort(alphabet.begin(), alphabet.end());
  std::string text;
  for (const std::int64_t token : tokens) text += static_cast<char>(alphabet.at(static_cast<std::size_t>(token)));
  return text;
}

std::string window_text(const data::Dataset& dataset, const std::string& text_path) {
  const std::vector<std::int64_t> tokens = first_window(dataset);
  return text_path.empty() ? joined_numbers(tokens, " ") : characters_of(tokens, text_path);
}

/// An array of samples in rows.
struct RowFacts {
  std::string role;
  const data::RowArray* array = nullptr;
  StorageFacts storage = {};  ///< that of the first file
};

std::vector<RowFacts> row_facts(const data::Dataset& dataset) {
  const auto* const rows = data::ability_of<data::RowDataset>(dataset);
  if (rows == nullptr) return {};
  std::vector<RowFacts> facts;
  const auto add = [&facts](const std::string& role, const data::RowArray* array) {
    if (array == nullptr) return;
    const auto file = arrays::open_arrays(array->first().file);
    facts.push_back({.role = role, .array = array, .storage = storage_of(*file, array->first_info())});
  };
  add("inputs", rows->rows().inputs.get());
  if (rows->rows().targets) add("targets", rows->rows().targets->array());
  add("weights", rows->rows().weights.get());
  return facts;
}

std::string text_of(const RowFacts& facts) {
  const data::RowArray& array = *facts.array;
  const std::string& name = array.first().array;
  const std::size_t files = array.sizes().size();
  return fmt::format("{}: {} rows in {}, {}{} {}, {}", facts.role, array.size(),
                     files == 1 ? "1 file" : fmt::format("{} files", files), name.empty() ? "" : name + ": ",
                     arrays::name_of(array.type()), shape_text(array.first_info().shape), storage_text(facts.storage));
}

Json json_of(const RowFacts& facts) {
  const data::RowArray& array = *facts.array;
  return {{"files", array.sizes().size()},         {"rows", array.size()},
          {"row_shape", array.row_shape()},        {"array", array.first().array},
          {"type", arrays::name_of(array.type())}, {"storage", Json::parse(storage_json(facts.storage))}};
}

/// The number of samples of each class; empty if they do not have one class each.
std::vector<std::int64_t> class_counts(const data::Dataset& dataset) {
  if (dataset.task().is_text) return {};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(dataset.task().classes));
  try {
    for (const std::int64_t label : data::labels_of(dataset)) {
      if (label >= 0) ++counts.at(static_cast<std::size_t>(label));
    }
  } catch (const DataError&) {
    return {};
  }
  return counts;
}

/// ", 2 classes", and the samples of each; "" if there are no classes.
std::string classes_text(const Task& task, const std::vector<std::int64_t>& counts) {
  if (counts.empty()) return "";
  std::string text = fmt::format(", {} classes\nsamples of each class:", counts.size());
  for (std::size_t c = 0; c < std::min(counts.size(), kMaxClassRows); ++c) {
    text += " " + class_name(task.class_names, c) + " " + std::to_string(counts[c]);
  }
  return text;
}

}  // namespace

std::string report_text(const DataReport& report) {
  std::string text = "data.name = " + report.source + "; sizes are minimum / median / maximum\n\n";
  text += split_table(report) + "\n" + class_table(report) + "\n";
  if (report.statistics) text += statistics_text(*report.statistics) + "\n";
  return text + duplicates_text(report) + bad_text(report);
}

std::string report_json(const DataReport& report) {
  Json json = {{"source", report.source}, {"class_names", report.class_names}, {"splits", Json::object()}};
  for (const ImageSurvey& split : report.splits) {
    Json& each = json["splits"][split.split];
    each = {{"images", split.images},
            {"bytes", split.bytes},
            {"images_of_class", split.images_of_class},
            {"height", json_of(split.height)},
            {"width", json_of(split.width)},
            {"aspect", json_of(split.aspect)},
            {"formats", split.formats},
            {"channels", json_of(split.channels)},
            {"orientations", json_of(split.orientations)},
            {"bad", Json::array()}};
    for (const BadImage& bad : split.bad) each["bad"].push_back({{"path", bad.place}, {"fault", bad.fault}});
  }
  json["duplicates"] = Json::array();
  for (std::size_t i = 0; i < report.duplicates.size(); ++i) {
    const Duplicate& each = report.duplicates[i];
    json["duplicates"].push_back({{each.first_split, report.duplicate_names[i].first},
                                  {"same_as", {{each.second_split, report.duplicate_names[i].second}}}});
  }
  if (report.statistics) {
    json["mean"] = report.statistics->mean;
    json["std"] = report.statistics->std;
  }
  json["is_decoded"] = report.is_decoded;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string speeds_text(const std::vector<LoadingSpeed>& speeds) {
  std::vector<std::vector<std::string>> rows = {{"images/s", "read", "decode", "transform", "together"}};
  for (const LoadingSpeed& speed : speeds) {
    rows.push_back({std::to_string(speed.threads) + (speed.threads == 1 ? " thread" : " threads"),
                    fmt::format("{:.0f}", speed.read), fmt::format("{:.0f}", speed.decode),
                    fmt::format("{:.0f}", speed.transform), fmt::format("{:.0f}", speed.together)});
  }
  return table_text(rows);
}

std::string speeds_json(const std::vector<LoadingSpeed>& speeds) {
  Json json = {{"images_per_second", Json::array()}};
  for (const LoadingSpeed& speed : speeds) {
    json["images_per_second"].push_back({{"threads", speed.threads},
                                         {"read", speed.read},
                                         {"decode", speed.decode},
                                         {"transform", speed.transform},
                                         {"together", speed.together}});
  }
  json["verdict"] = verdict_on(speeds);
  return json.dump(2);
}

std::string transforms_text(const std::vector<data::TransformRow>& rows) {
  std::string text;
  for (const data::TransformRow& row : rows) {
    text += (text.empty() ? "" : "\n") + row.name + (row.is_random ? " (random)" : "") + ": " + row.help;
    for (const KeySpec& key : row.keys) {
      text += "\n    " + key.name + " (default " + (key.default_value.empty() ? "\"\"" : key.default_value) +
              "): " + key.help;
    }
  }
  return text;
}

std::string samples_text(const SamplesReport& report) {
  std::string text = "data.name = " + report.source;
  for (const auto& [split, dataset] : report.splits) {
    if (!dataset) continue;
    const Task task = dataset->task();
    text += fmt::format("\n\n{}: {} {}", split, dataset->size(), task.is_text ? "windows" : "samples");
    if (!task.sample_shape.empty()) text += " of " + joined_numbers(task.sample_shape, " x ");
    if (task.is_text) {
      text += fmt::format(", vocabulary of {} tokens\nfirst window: {}", task.classes,
                          window_text(*dataset, report.text_path));
      continue;
    }
    text += classes_text(task, class_counts(*dataset));
    for (const RowFacts& facts : row_facts(*dataset)) text += "\n" + text_of(facts);
  }
  return text;
}

std::string samples_json(const SamplesReport& report) {
  Json json = {{"source", report.source}, {"splits", Json::object()}};
  for (const auto& [split, dataset] : report.splits) {
    if (!dataset) continue;
    const Task task = dataset->task();
    Json& each = json["splits"][split];
    each = {{"samples", dataset->size()}, {"sample_shape", task.sample_shape}, {"classes", task.classes}};
    if (task.is_text) {
      each["first_window"] = window_text(*dataset, report.text_path);
    } else {
      each["samples_of_class"] = class_counts(*dataset);
    }
    for (const RowFacts& facts : row_facts(*dataset)) each[facts.role] = json_of(facts);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::trainer
