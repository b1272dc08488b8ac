// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "core/numbers/latitudes.hpp"
#include "core/text/text.hpp"
#include "data/fields/field_agreement.hpp"
#include "data/fields/field_chunks.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/fields/field_paths.hpp"
#include "data/fields/field_settings.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

/// The key of the permutation that selects the trajectories for validation.
constexpr std::uint64_t kFieldSplitKey = 0x6669656c64;

/// Unpacked bytes for each byte that samples use, from which on a remark is worth its reading.
constexpr double kWastefulFactor = 1.5;

struct OpenedFields {
  FieldDescription description;
  std::vector<std::string> notes;
};

/// Opens the files of a split one after the other.
class FieldOpener {
 public:
  FieldOpener(const Section& data, FieldSettings settings)
      : data_(data),
        settings_(std::move(settings)),
        files_(std::make_shared<arrays::OpenFiles>(settings_.open_files)) {}

  const FieldSettings& settings() const noexcept { return settings_; }
  const std::shared_ptr<arrays::OpenFiles>& files() const noexcept { return files_; }

  /// @param first  the first files of the training part, which the others must agree with; null = these are they
  OpenedFields open(const std::vector<std::string>& inputs, const std::vector<std::string>& targets,
                    const FieldDescription* first);

 private:
  FieldFileOptions options_for(const std::vector<VariableChoice>& variables) const {
    return {.variables = variables,
            .layout = settings_.layout,
            .layout_cited = settings_.layout_cited,
            .channel_names = settings_.channel_names};
  }
  FieldPair open_pair(const std::string& input, const std::string& target);
  void complete_rule(FieldDescription& description) const;
  void add_series(FieldDescription& description, std::vector<std::string>& notes) const;
  void add_statics(FieldDescription& description);
  void add_positions(FieldDescription& description) const;
  void add_cycles(FieldDescription& description) const;
  void require_size(const FieldDescription& description) const;
  void note_differences(const FieldPair& pair, const FieldPair& first, const SampleSpace& space,
                        std::vector<std::string>& notes) const;

  const Section& data_;
  FieldSettings settings_;
  std::shared_ptr<arrays::OpenFiles> files_;
};

FieldPair FieldOpener::open_pair(const std::string& input, const std::string& target) {
  const auto file = files_->get(input);
  if (settings_.inputs.empty()) settings_.inputs = found_variables(*file);
  FieldPair pair{.inputs = open_field_file(*file, options_for(settings_.inputs)), .targets = {}};
  std::vector<VariableChoice> wanted = settings_.targets;
  if (wanted.empty()) {
    wanted.assign(settings_.inputs.begin(), settings_.inputs.end() - static_cast<std::ptrdiff_t>(settings_.forcings));
  }
  const auto other = files_->get(target);
  if (settings_.targets.empty() && target != input) wanted = found_variables(*other);
  pair.targets = open_field_file(*other, options_for(wanted));
  const auto require_equal = [&](std::int64_t in, std::int64_t out, const char* what) {
    if (in == out) return;
    throw DataError(target, "has " + std::to_string(out) + " " + what + " of targets, but " + input + " has " +
                                std::to_string(in) + " of inputs");
  };
  require_equal(pair.inputs.trajectories, pair.targets.trajectories, "trajectories or rows");
  if (pair.inputs.has_time || pair.targets.has_time) {
    require_equal(pair.inputs.steps, pair.targets.steps, "steps");
  }
  return pair;
}

/// Replaces what depends on the files: the lead of arrays without time, and the rest of a trajectory.
void FieldOpener::complete_rule(FieldDescription& description) const {
  WindowRule rule = settings_.window;
  const FieldFile& file = description.pairs.front().inputs;
  if (rule.lead < 0) rule.lead = file.has_time ? rule.stride : 0;
  if (rule.steps_out < 0) {
    const std::int64_t left = file.steps - 1 - (rule.steps_in - 1) * rule.stride - rule.lead;
    rule.steps_out = std::max<std::int64_t>(left < 0 ? 1 : left / rule.stride + 1, 1);
  }
  if (settings_.is_disjoint) rule.every = rule.span() + 1;
  description.rule = rule;
}

void FieldOpener::require_size(const FieldDescription& description) const {
  const WindowRule& rule = description.rule;
  double numbers = 0;
  const auto points = static_cast<double>(points_of(description.space));
  numbers += static_cast<double>(rule.steps_in * description.pairs.front().inputs.channels()) * points;
  numbers += static_cast<double>(rule.steps_out * description.pairs.front().targets.channels()) * points;
  const double bytes = 2 * numbers * sizeof(float);  // stored and decoded numbers
  if (bytes <= static_cast<double>(settings_.max_sample_bytes)) return;
  throw DataError(description.pairs.front().inputs.path,
                  "a sample needs " + number_text(bytes / (1 << 20), 4) +
                      " MiB of memory while it is read, more than data.max_sample_mb; choose a crop or fewer steps");
}

/// The series of the files: each for itself, or all as one.
void FieldOpener::add_series(FieldDescription& description, std::vector<std::string>& notes) const {
  std::vector<std::size_t> order(description.pairs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto times = [&](std::size_t i) -> const std::vector<double>& { return description.pairs[i].inputs.times; };
  const bool have_times = std::ranges::none_of(order, [&](std::size_t i) { return times(i).empty(); });
  if (settings_.is_joined && settings_.is_ordered_by_time) {
    if (!have_times) throw ConfigError(data_.cite("order") + " = time, but the files have no times with a unit");
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return times(a).front() < times(b).front(); });
  }
  std::vector<FieldSeries> all;
  std::vector<std::vector<double>> all_times;
  std::int64_t length = 0;
  for (const std::size_t i : order) {
    const FieldFile& file = description.pairs[i].inputs;
    if (file.steps == 0 || file.trajectories == 0) {
      if (order.size() == 1) throw DataError(file.path, "contains no steps");
      description.too_short.push_back(i);
      notes.push_back(file.path + ": skipped, because it contains no steps");
      continue;
    }
    if (all.empty() || !settings_.is_joined) {
      all.emplace_back();
      all_times.emplace_back();
      length = 0;
      for (std::int64_t k = 0; k < file.trajectories; ++k) all.back().trajectories.push_back(k);
    } else if (file.trajectories != std::ssize(all.back().trajectories)) {
      throw DataError(file.path, "has " + std::to_string(file.trajectories) + " trajectories, but " +
                                     description.pairs[all.back().files.front()].inputs.path + " has " +
                                     std::to_string(std::ssize(all.back().trajectories)) +
                                     "; files of one series must have the same number");
    } else if (have_times && !all_times.back().empty() && file.times.front() <= all_times.back().back()) {
      throw DataError(file.path, "begins before the end of " + description.pairs[all.back().files.back()].inputs.path +
                                     "; the files of a series follow the order of their names, or of their times with "
                                     "data.order = time");
    }
    all.back().files.push_back(i);
    all.back().begins.push_back(length);
    length += file.steps;
    all_times.back().insert(all_times.back().end(), file.times.begin(), file.times.end());
    if (std::ssize(all_times.back()) != length) all_times.back().clear();
  }
  std::string longest;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const FieldFile& last = description.pairs[all[i].files.back()].inputs;
    const std::int64_t steps = all[i].begins.back() + last.steps;
    std::vector<bool> gaps;
    const bool are_gaps_known = !last.has_implied_unit || settings_.cadence.seconds > 0;
    if (!all_times[i].empty() && are_gaps_known) gaps = arrays::gaps_between(all_times[i], settings_.cadence);
    const std::int64_t found = std::ranges::count(gaps, true);
    const std::string& path = description.pairs[all[i].files.front()].inputs.path;
    if (found > 0) {
      notes.push_back(path + ": the array 'time' has " + std::to_string(found) + (found == 1 ? " gap" : " gaps") +
                      ", which no window crosses; see data.cadence");
    }
    all[i].starts = starts_in(0, steps, description.rule, gaps);
    all[i].end = steps;
    all[i].gaps = std::move(gaps);
    if (steps > most) {
      most = steps;
      longest = path;
    }
    if (!all[i].starts.empty()) {
      description.series.push_back(all[i]);
    } else {
      description.too_short.insert(description.too_short.end(), all[i].files.begin(), all[i].files.end());
      notes.push_back(path + ": skipped, because its " + std::to_string(steps) + " steps are too few for a window of " +
                      std::to_string(description.rule.span() + 1));
    }
  }
  if (description.series.empty()) {
    throw DataError(longest.empty() ? description.pairs.front().inputs.path : longest,
                    "has " + std::to_string(most) + " steps, but a sample needs " +
                        std::to_string(description.rule.span() + 1) +
                        " steps without a gap; see data.steps_in, steps_out, stride and lead");
  }
}

/// Adds what the files of a pair say otherwise than the first ones; each sentence once for all files.
void FieldOpener::note_differences(const FieldPair& pair, const FieldPair& first, const SampleSpace& space,
                                   std::vector<std::string>& notes) const {
  const auto add = [&notes](const std::string& path, const std::vector<std::string>& differences) {
    for (const std::string& sentence : differences) {
      const auto has_it = [&](const std::string& note) { return note.ends_with(": " + sentence); };
      if (std::ranges::none_of(notes, has_it)) notes.push_back(path + ": " + sentence);
    }
  };
  const std::string& space_of = first.inputs.path;
  add(pair.inputs.path, differences_in(*files_->get(pair.inputs.path), pair.inputs, first.inputs, space, space_of));
  if (pair.targets.path == pair.inputs.path) return;
  add(pair.targets.path, differences_in(*files_->get(pair.targets.path), pair.targets, first.targets, space, space_of));
  add(pair.targets.path, differences_of_times(pair));
}

void FieldOpener::add_statics(FieldDescription& description) {
  for (const StaticChoice& choice : settings_.statics) {
    const auto file = files_->get(choice.file);
    FieldFileOptions options = options_for({choice.variable});
    if (!options.layout.by_variable.contains(choice.variable.path)) {
      // A layout for all variables has other axes than a field without time.
      options.layout.common = letters_by_names(file->find(choice.variable.path), description.space);
      if (options.layout.common.empty()) {
        for (const SpaceAxis& axis : description.space) options.layout.common += axis.letter;
      }
    }
    const FieldFile described = open_field_file(*file, options);
    require_same_fields(described, described, description.space);
    const FieldFile& inputs = description.pairs.front().inputs;
    differences_in(*file, described, inputs, description.space, inputs.path);
    if (described.steps * described.trajectories > 1) {
      throw DataError(choice.file, "the array '" + choice.variable.path + "' has " +
                                       std::to_string(described.steps * described.trajectories) +
                                       " steps or trajectories, but a static field has one; choose it, as in " +
                                       choice.variable.path + "[time#0]");
    }
    const FieldVariable& variable = described.variables.front();
    const std::size_t begin = description.statics.size();
    const std::int64_t size = points_of(description.space) * std::ssize(variable.channels);
    description.statics.resize(begin + static_cast<std::size_t>(size));
    read_steps(*file, variable, 0, 0, 1, 1, description.space, description.statics.data() + begin, size);
    description.static_names.insert(description.static_names.end(), variable.names.begin(), variable.names.end());
  }
}

void FieldOpener::add_positions(FieldDescription& description) const {
  const SampleSpace& space = description.space;
  const auto points = static_cast<std::size_t>(points_of(space));
  std::size_t inner = points;  // points of one position of the axis
  for (const SpaceAxis& axis : space) {
    const auto count = static_cast<std::size_t>(axis.count());
    inner /= count;
    const bool is_latitude = is_latitude_axis(axis.name, axis.unit);
    if (settings_.position == "none" || (settings_.position == "latitude" && !is_latitude)) continue;
    if (settings_.position != "grid" && axis.coordinates.empty()) {
      throw ConfigError(data_.cite("position") + ": the files have no coordinates of the axis " + axis.name +
                        "; use grid");
    }
    for (std::size_t i = 0; i < points; ++i) {
      const std::size_t position = i / inner % count;
      double value = static_cast<double>(position) / static_cast<double>(count);
      if (settings_.position != "grid") value = axis.coordinates[position];
      if (settings_.position == "latitude") value = std::sin(value * std::numbers::pi / 180);
      description.positions.push_back(static_cast<float>(value));
    }
    description.position_names.push_back(axis.name);
  }
  if (settings_.position == "latitude" && description.position_names.empty()) {
    throw ConfigError(data_.cite("position") +
                      ": no axis of the fields has latitudes (it is called lat or latitude, or "
                      "has the unit degrees_north); use grid");
  }
}

void FieldOpener::add_cycles(FieldDescription& description) const {
  if (settings_.cycles.empty()) return;
  for (const FieldPair& pair : description.pairs) {
    if (!pair.inputs.times.empty()) continue;
    throw ConfigError(data_.cite("cycle") + ": " + pair.inputs.path + " has no times with a unit; remove the key");
  }
  description.cycles = settings_.cycles;
}

OpenedFields FieldOpener::open(const std::vector<std::string>& inputs, const std::vector<std::string>& targets,
                               const FieldDescription* first) {
  OpenedFields opened;
  FieldDescription& description = opened.description;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    description.pairs.push_back(open_pair(inputs[i], targets.empty() ? inputs[i] : targets[i]));
    const FieldPair& model = first == nullptr ? description.pairs.front() : first->pairs.front();
    if (i == 0 && first == nullptr) {
      description.space = space_of(*files_->get(inputs[i]), model.inputs, settings_.parts);
    } else if (i == 0) {
      description.space = first->space;
    }
    require_same_fields(model.inputs, description.pairs.back().inputs, description.space);
    require_same_fields(model.targets, description.pairs.back().targets, description.space);
    note_differences(description.pairs.back(), model, description.space, opened.notes);
  }
  description.gaps = settings_.gaps;
  description.normalization = settings_.normalization;
  description.has_gap_channel = settings_.has_gap_channel;
  description.classes = settings_.classes;
  complete_rule(description);
  require_size(description);
  add_series(description, opened.notes);
  add_statics(description);
  add_positions(description);
  add_cycles(description);
  return opened;
}

/// A description with some trajectories of another one. @param is_wanted  by their number over all series
template <class IsWanted>
FieldDescription with_trajectories(const FieldDescription& all, const IsWanted& is_wanted) {
  FieldDescription part = all;
  std::int64_t number = 0;
  for (FieldSeries& series : part.series) {
    std::erase_if(series.trajectories, [&](std::int64_t) { return !is_wanted(number++); });
  }
  std::erase_if(part.series, [](const FieldSeries& series) { return series.trajectories.empty(); });
  return part;
}

/// Divides one trajectory: the windows that lie before `cut`, or those after it.
FieldDescription with_steps(const FieldDescription& all, std::int64_t cut, bool is_after) {
  FieldDescription part = all;
  const std::int64_t span = all.rule.span();
  FieldSeries& series = part.series.front();
  std::erase_if(series.starts, [&](std::int64_t start) { return is_after ? start < cut : start + span >= cut; });
  (is_after ? series.begin : series.end) = cut;
  return part;
}

struct DividedFields {
  FieldDescription train;
  FieldDescription val;
};

/// Divides data with one part as data.trajectories or data.val_fraction state.
DividedFields divided(const FieldDescription& all, const FieldSettings& settings, const Section& data) {
  std::int64_t count = 0;
  for (const FieldSeries& series : all.series) count += std::ssize(series.trajectories);
  std::set<std::int64_t> chosen;
  if (!settings.trajectories.empty()) {
    if (settings.trajectories.back() >= count) {
      throw ConfigError(data.cite("trajectories") + ": there is no trajectory " +
                        std::to_string(settings.trajectories.back()) + "; the data have " + std::to_string(count));
    }
    chosen.insert(settings.trajectories.begin(), settings.trajectories.end());
  } else if (count > 1) {
    const random::Permutation order(static_cast<std::uint64_t>(count), kFieldSplitKey);
    const auto kept = std::clamp<std::int64_t>(count - std::llround(settings.val_fraction * static_cast<double>(count)),
                                               1, count - 1);
    for (std::int64_t i = 0; i < kept; ++i) {
      chosen.insert(static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i))));
    }
  } else {
    const std::int64_t last = all.series.front().starts.back() + all.rule.span() + 1;
    const auto cut = static_cast<std::int64_t>(std::ceil((1 - settings.val_fraction) * static_cast<double>(last)));
    return {.train = with_steps(all, cut, false), .val = with_steps(all, cut, true)};
  }
  return {.train = with_trajectories(all, [&](std::int64_t i) { return chosen.contains(i); }),
          .val = with_trajectories(all, [&](std::int64_t i) { return !chosen.contains(i); })};
}

bool has_samples(const FieldDescription& part) {
  return std::ranges::any_of(part.series, [](const FieldSeries& series) { return series.samples() > 0; });
}

/// A remark about chunks that a random order unpacks many times, because they hold more than a sample and not all of
/// them stay in memory.
std::string chunk_note(const FieldDescription& description, const FieldSettings& settings, const Section& data) {
  const FieldFile& file = description.pairs.front().inputs;
  const auto variable =
      std::ranges::find_if(file.variables, [&](const FieldVariable& each) { return is_in_chunks(file.path, each); });
  const bool is_random = data.text("sampler") != "chunks" && data.boolean("shuffle");
  if (variable == file.variables.end() || !is_random) return "";
  const ChunkCost cost = chunk_cost_of(description);
  if (cost.all <= static_cast<double>(settings.chunk_cache_bytes) || cost.factor() < kWastefulFactor) return "";
  const double mebibytes = cost.all / (1 << 20);
  return file.path + ": a chunk of the array '" + variable->info.path + "' holds " + chunk_size_text(*variable) +
         ", so that a random order unpacks " + number_text(cost.factor(), 3) +
         " times the bytes that samples use: all chunks have " + number_text(mebibytes, 3) +
         " MiB, more than data.chunk_cache_mb; set data.sampler=chunks, or data.chunk_cache_mb=" +
         number_text(std::ceil(mebibytes));
}

Splits open_fields(const Section& data, const UsedSplits& used) {
  FieldOpener opener(data, FieldSettings::from(data));
  arrays::set_chunk_cache(opener.settings().chunk_cache_bytes);
  FieldPaths paths = field_splits(required_path(data, "files of HDF5, netCDF-4, npy or npz, or a folder of them"));
  if (!data.text("val_path").empty()) paths.val = data.text("val_path");
  if (!data.text("test_path").empty()) paths.test = data.text("test_path");
  Splits splits;
  const auto open_part = [&](const std::string& path, const std::string& path_key, const std::string& target_key,
                             const FieldDescription* first) {
    std::vector<std::string> inputs = field_files(path, data.cite(path_key));
    const std::string& own = data.text(target_key);
    const std::string& common = data.text("target_path");
    const std::string& pattern = own.empty() && common.find('%') != std::string::npos ? common : own;
    const std::vector<std::string> targets = pattern.empty()
                                                 ? (common.empty() ? take_targets(inputs) : std::vector<std::string>())
                                                 : target_files(inputs, pattern, data.cite(target_key));
    OpenedFields opened = opener.open(inputs, targets, first);
    splits.notes.insert(splits.notes.end(), opened.notes.begin(), opened.notes.end());
    return std::move(opened.description);
  };
  const auto dataset = [&](FieldDescription description) {
    return std::make_shared<const FieldDataset>(std::move(description), opener.files());
  };
  FieldDescription train = open_part(paths.train, "path", "target_path", nullptr);
  const std::string note = chunk_note(train, opener.settings(), data);
  if (!note.empty()) splits.notes.push_back(note);
  const bool is_one_part = paths.val.empty() && paths.test.empty();
  if (is_one_part && (opener.settings().val_fraction > 0 || !opener.settings().trajectories.empty())) {
    DividedFields parts = divided(train, opener.settings(), data);
    if (!has_samples(parts.train)) {
      throw ConfigError(data.cite("val_fraction") + ": no window is left for training; choose a smaller fraction");
    }
    if (used.val && has_samples(parts.val)) splits.val = dataset(std::move(parts.val));
    train = std::move(parts.train);
    splits.train = dataset(std::move(train));
    return splits;
  }
  if (!opener.settings().trajectories.empty()) {
    train = with_trajectories(
        train, [&](std::int64_t i) { return std::ranges::binary_search(opener.settings().trajectories, i); });
    if (!has_samples(train))
      throw ConfigError(data.cite("trajectories") + ": the data have none of these trajectories");
  }
  const bool is_shared = paths.val.empty() && !paths.test.empty();
  if (is_shared) splits.notes.push_back(paths.train + ": there is no validation part, so that test is used for it");
  if (!paths.val.empty() && used.val) {
    splits.val = dataset(open_part(paths.val, "val_path", "val_target_path", &train));
  }
  if (!paths.test.empty() && (used.test || (is_shared && used.val))) {
    splits.test = dataset(open_part(paths.test, "test_path", "test_target_path", &train));
    if (is_shared) splits.val = splits.test;
  }
  splits.train = dataset(std::move(train));
  return splits;
}

}  // namespace

Source fields_source() {
  return {.name = "fields",
          .help =
              "Windows of arrays of simulations and observations in files of HDF5, netCDF-4, npy and npz: data.path "
              "is a file, a pattern, or a folder, with or without train, valid and test",
          .keys = FieldSettings::keys(),
          .open = OpenFunction<Splits>(open_fields)};
}

}  // namespace lockstep::data
