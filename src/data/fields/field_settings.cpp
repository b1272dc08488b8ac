// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_settings.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "data/source/sources.hpp"
#include "data/stores/cache_files.hpp"

namespace lockstep::data {

namespace {

constexpr double kMiB = 1 << 20;
constexpr double kDay = 86400;

/// Reads the names of channels from a JSON file: a list, or Makani's coords.channel.
std::vector<std::string> names_from(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path);
  if (!file) throw DataError(path, "cannot be read; check data.channels_from");
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    return (json.is_array() ? json : json.at("coords").at("channel")).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(path,
                    "is neither a JSON list of names of channels nor an object with such a list as "
                    "coords.channel; check data.channels_from");
  }
}

/// Reads "6h", "1month", "any" or "auto".
arrays::Cadence parse_cadence(const std::string& text, const std::string& cited) {
  if (text == "any") return {.is_any = true};
  if (text == "auto") return {};
  struct UnitRow {
    std::string_view name;
    double seconds;
    double tolerance;
  };
  static constexpr UnitRow kUnits[] = {{"s", 1, 1e-5},
                                       {"min", 60, 1e-5},
                                       {"h", 3600, 1e-5},
                                       {"d", kDay, 1e-5},
                                       {"day", kDay, 1e-5},
                                       {"days", kDay, 1e-5},
                                       {"month", 30.4375 * kDay, 0.1},
                                       {"months", 30.4375 * kDay, 0.1},
                                       {"year", 365.25 * kDay, 0.01}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const double number = parse_real(text.substr(0, digits)).value_or(0);
  for (const UnitRow& row : kUnits) {
    if (number > 0 && text.substr(digits) == row.name) {
      return {.seconds = number * row.seconds, .tolerance = row.tolerance};
    }
  }
  throw ConfigError(cited + ": '" + text +
                    "' is no time between steps; write auto, any, or a number with a unit, as in "
                    "6h, 30min, 1day or 1month");
}

std::int64_t steps_out_of(const Section& data) {
  const std::string& text = data.text("steps_out");
  if (text == "rest") return -1;
  const auto number = parse_integer(text);
  if (number && *number >= 0) return *number;
  throw ConfigError(data.cite("steps_out") + ": '" + text + "' is neither a number of steps nor rest");
}

std::int64_t lead_of(const Section& data) {
  const std::string& text = data.text("lead");
  if (text == "auto") return -1;
  const auto number = parse_integer(text);
  if (number && *number >= 0) return *number;
  throw ConfigError(data.cite("lead") + ": '" + text + "' is neither a number of steps nor auto");
}

void read_starts(const Section& data, FieldSettings& settings) {
  const std::string& text = data.text("starts");
  if (text == "all") return;
  settings.window.is_first_only = text == "first";
  settings.is_disjoint = text == "disjoint";
  if (settings.window.is_first_only || settings.is_disjoint) return;
  const auto every = text.starts_with("every:") ? parse_integer(text.substr(6)) : std::nullopt;
  if (!every || *every < 1) {
    throw ConfigError(data.cite("starts") + ": '" + text + "' is not one of: all, first, disjoint, every:N");
  }
  settings.window.every = *every;
}

std::vector<StaticChoice> statics_of(const Section& data) {
  std::vector<StaticChoice> statics;
  for (const std::string& text : data.texts("static")) {
    const std::size_t colon = text.rfind(':');
    if (text.empty()) continue;
    if (colon == std::string::npos) {
      statics.push_back({.file = text, .variable = {}});
      continue;
    }
    if (colon == 0 || colon + 1 == text.size()) {
      throw ConfigError(data.cite("static") + ": '" + text + "' has not the form FILE:VARIABLE");
    }
    for (const VariableChoice& variable : parse_variables(text.substr(colon + 1), data.cite("static"))) {
      statics.push_back({.file = text.substr(0, colon), .variable = variable});
    }
  }
  return statics;
}

/// "u10+v10,u100+v100".
std::vector<std::vector<std::string>> vectors_of(const Section& data) {
  std::vector<std::vector<std::string>> vectors;
  for (const std::string& text : words_in(data.text("vector"))) {
    vectors.push_back(split(text, '+'));
    if (vectors.back().size() < 2) {
      throw ConfigError(data.cite("vector") + ": '" + text + "' names no two channels; write u10+v10");
    }
  }
  return vectors;
}

/// "4:1500,5:800".
std::map<std::int64_t, double> rates_of(const Section& data) {
  std::map<std::int64_t, double> rates;
  for (const std::string& text : words_in(data.text("exponential"))) {
    const std::size_t colon = text.find(':');
    const auto channel = parse_integer(text.substr(0, colon));
    const auto rate = colon == std::string::npos ? std::nullopt : parse_real(text.substr(colon + 1));
    if (!channel || !rate || *channel < 0 || !(*rate > 0)) {
      throw ConfigError(data.cite("exponential") + ": '" + text + "' has not the form CHANNEL:RATE, as in 4:1500");
    }
    rates[*channel] = *rate;
  }
  return rates;
}

double floor_of(const Section& data) {
  const std::string& text = data.text("std_floor");
  if (text == "auto") return -1;
  const auto number = parse_real(text);
  if (number && *number >= 0) return *number;
  throw ConfigError(data.cite("std_floor") + ": '" + text + "' is neither auto nor a number of at least 0");
}

NormalizationRule normalization_of(const Section& data) {
  static const std::map<std::string, Normalization> kKinds = {{"none", Normalization::none},
                                                              {"zscore", Normalization::zscore},
                                                              {"rms", Normalization::rms},
                                                              {"minmax", Normalization::minmax}};
  static const std::map<std::string, FieldPrediction> kPredictions = {{"values", FieldPrediction::values},
                                                                      {"differences", FieldPrediction::differences},
                                                                      {"steps", FieldPrediction::steps}};
  return {.kind = kKinds.at(data.text("normalize")),
          .prediction = kPredictions.at(data.text("predict")),
          .floor = floor_of(data),
          .weighs_area = data.boolean("statistics_area"),
          .vectors = vectors_of(data),
          .rates = rates_of(data),
          .statistics = data.text("statistics"),
          .cache = cache_folder(data.text("cache")),
          .statistics_cited = data.cite("statistics"),
          .vector_cited = data.cite("vector"),
          .area_cited = data.cite("statistics_area"),
          .exponential_cited = data.cite("exponential")};
}

std::vector<std::string> cycles_of(const Section& data) {
  std::vector<std::string> cycles = words_in(data.text("cycle"));
  for (const std::string& cycle : cycles) {
    if (cycle != "year" && cycle != "day") {
      throw ConfigError(data.cite("cycle") + ": '" + cycle + "' is neither year nor day");
    }
  }
  return cycles;
}

GapRule gaps_of(const std::string& name) {
  if (name == "zero") return GapRule::zero;
  return name == "mean" ? GapRule::mean : GapRule::error;
}

}  // namespace

KeySpecs FieldSettings::keys() {
  using namespace lockstep::keys;
  return {
      val_path_key(),
      text("data.test_path", "", "Files of the test part, like data.path; empty = see data.path"),
      text("data.target_path", "",
           "Files of the targets, if they are others: as many as data.path names, or with % for the name of each of "
           "these without its ending"),
      text("data.val_target_path", "", "The same for data.val_path; empty = data.target_path with %"),
      text("data.test_target_path", "", "The same for data.test_path; empty = data.target_path with %"),
      text("data.variables", "",
           "Arrays that are inputs and, by default, targets: density,pressure. fields[z500,t850] chooses channels by "
           "name, fields[0,3] by index, z[level=500] and z[level#1] a position of another axis; */data is one array of "
           "each group, which is a trajectory. If empty, they are found by the conventions of netCDF, The Well, "
           "PDEBench and Makani"),
      text("data.target_variables", "", "Arrays that are targets, in the same form. If empty, those of data.variables"),
      choice("data.target_kind", "real", "Targets are numbers, or the class of each point (data.classes)",
             {"real", "class"}),
      classes_key(),
      texts("data.static", "",
            "FILE:VARIABLE, or an npy FILE: fields without time that are appended to the inputs; repeatable"),
      text("data.forcing", "", "Arrays that are inputs but no targets, in the form of data.variables"),
      text("data.layout", "",
           "The meaning of the stored axes, a letter for each: n = trajectory or row, t = time, c = channel, a and b = "
           "row and column of a tensor, others = space, as in ntxy; VARIABLE:ntxy for one array, which is the name of "
           "the file without its ending for npy. If empty, the names of "
           "the axes state it"),
      expert(text("data.channels_from", "",
                  "JSON file with the names of the channels: a list, or an object with the list coords.channel")),
      integer("data.steps_in", "1", "Steps of time of the input", 1, 1 << 20),
      text("data.steps_out", "1", "Steps of time of the target. 0 = none; rest = all that follow"),
      integer("data.stride", "1", "Stored steps between two steps of a sample", 1, 1 << 20),
      text("data.lead", "auto",
           "Stored steps from the last input to the first target. auto = data.stride; 0 for arrays without time"),
      text("data.starts", "all",
           "Windows of a trajectory: all, every:N (each N-th start), first (one), disjoint (no step twice)"),
      boolean("data.join", "false",
              "The files are one series of time, so that windows can cross from one to the next; otherwise each file "
              "is for itself"),
      expert(choice("data.order", "name", "Order of joined files: that of their names, or of their times",
                    {"name", "time"})),
      expert(text("data.cadence", "auto",
                  "Time between steps, as in 6h or 1month; windows do not cross longer ones. auto = the commonest one; "
                  "any = no step is a gap")),
      text("data.crop", "", "Part of the space: x:0-64,y:8-40, where the end is not included"),
      text("data.subsample", "", "Every k-th point, from the first of the crop: x:2,y:2"),
      text("data.trajectories", "",
           "Trajectories of the training part, 0-89,95, counted over all files; the others are for validation"),
      val_fraction_key(),
      choice("data.gaps", "error",
             "Points without a value (NaN, _FillValue): an error, or, in inputs, 0 or the mean of the channel. Targets "
             "without a value count neither in losses nor in metrics",
             {"error", "zero", "mean"}),
      boolean("data.gap_channel", "false", "Append channels to the inputs that are 1 where there is a value, else 0"),
      choice("data.normalize", "zscore",
             "Normalization of each channel inside the model: (x - mean) / std, x / rms, or (x - min) / (max - min). "
             "Losses compare values divided by the same number; metrics and predictions keep the units",
             {"none", "zscore", "rms", "minmax"}),
      text("data.statistics", "compute",
           "Statistics of the channels: computed from the training part, or read from the statistics.json of a run or "
           "of "
           "trainer data --statistics, from a folder with global_means.npy and global_stds.npy, from "
           "MEANS.npy,STDS.npy, a stats.yaml of The Well, or FILE:mean=PATH,std=PATH of HDF5 "
           "or netCDF-4"),
      choice("data.predict", "values",
             "What the model computes: values, differences to the newest step of the input, or steps, each the "
             "difference to the step before. They are added before losses, metrics and predictions",
             {"values", "differences", "steps"}),
      expert(text("data.std_floor", "auto",
                  "Smallest number to divide by. auto: a channel with a deviation of at most 1e-6 of its root mean "
                  "square counts as constant; 1e-4 with a stats.yaml")),
      expert(boolean("data.statistics_area", "false", "Statistics weigh each row of latitudes by its area")),
      expert(text("data.vector", "", "Channels that share a deviation, as in u10+v10,u100+v100")),
      expert(text("data.exponential", "",
                  "Rates of input channels that become 1 - exp(-rate * x) before the normalization: 4:1500,5:800")),
      text("data.cycle", "",
           "year, day: the sine and cosine of the time of the first target as input channels, for files with times"),
      choice("data.position", "none",
             "The place of each point as input channels: i / n along each axis, the sine of the latitude, or the "
             "coordinates of the file",
             {"none", "grid", "latitude", "coordinates"}),
      cache_key(),
      expert(real_above("data.max_sample_mb", 0, 1e9, "4096",
                        "Largest sample in MiB (1048576 bytes); larger ones are an error")),
      expert(real_above("data.chunk_cache_mb", 0, 1e9, "64",
                        "Memory in MiB (1048576 bytes) on each host for unpacked chunks of HDF5 files. The ranks of a "
                        "host divide it, and the loader threads of a rank share their part")),
      expert(integer("data.open_files", "64", "Files that a rank keeps open", 1, 1 << 16)),
  };
}

FieldSettings FieldSettings::from(const Section& data) {
  FieldSettings settings{
      .inputs = parse_variables(data.text("variables"), data.cite("variables")),
      .targets = parse_variables(data.text("target_variables"), data.cite("target_variables")),
      .statics = statics_of(data),
      .layout = parse_layouts(data.text("layout"), data.cite("layout")),
      .channel_names = names_from(data.text("channels_from")),
      .window = {.steps_in = data.integer("steps_in"),
                 .steps_out = steps_out_of(data),
                 .stride = data.integer("stride"),
                 .lead = lead_of(data)},
      .is_joined = data.boolean("join"),
      .is_ordered_by_time = data.text("order") == "time",
      .cadence = parse_cadence(data.text("cadence"), data.cite("cadence")),
      .parts = parse_space(data.text("crop"), data.cite("crop"), data.text("subsample"), data.cite("subsample")),
      .trajectories = parse_ranges(data.text("trajectories"), data.cite("trajectories")),
      .val_fraction = data.real("val_fraction"),
      .gaps = gaps_of(data.text("gaps")),
      .has_gap_channel = data.boolean("gap_channel"),
      .normalization = normalization_of(data),
      .position = data.text("position"),
      .cycles = cycles_of(data),
      .max_sample_bytes = static_cast<std::int64_t>(data.real("max_sample_mb") * kMiB),
      .chunk_cache_bytes = static_cast<std::size_t>(data.real("chunk_cache_mb") * kMiB),
      .open_files = static_cast<std::size_t>(data.integer("open_files")),
      .layout_cited = data.cite("layout"),
      .steps_in_cited = data.cite("steps_in")};
  read_starts(data, settings);
  const std::vector<VariableChoice> forcings = parse_variables(data.text("forcing"), data.cite("forcing"));
  settings.forcings = forcings.size();
  settings.inputs.insert(settings.inputs.end(), forcings.begin(), forcings.end());
  if (settings.inputs.size() == forcings.size() && !forcings.empty()) {
    throw ConfigError(data.cite("forcing") + " is set, but data.variables is not; name the variables, too");
  }
  if (settings.has_gap_channel && settings.gaps == GapRule::error) {
    throw ConfigError(data.cite("gap_channel") + " needs data.gaps = zero or mean");
  }
  if (data.text("target_kind") == "class") {
    settings.classes = data.integer("classes");
    if (settings.classes < 2) {
      throw ConfigError(data.cite("target_kind") + " = class needs data.classes, the number of classes");
    }
    if (settings.normalization.prediction != FieldPrediction::values) {
      throw ConfigError(data.cite("predict") + " needs targets that are numbers; use data.predict = values");
    }
    if (settings.window.steps_out != 1) {
      throw ConfigError(data.cite("steps_out") + ": a target of classes has 1 step; set data.steps_out = 1");
    }
  }
  return settings;
}

}  // namespace lockstep::data
