// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/text/text.hpp"
#include "data/stores/image_splits.hpp"
#include "engine/resume/components.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/stored_model.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

/// The values of a configuration as Config::to_ini writes them, by the names of their keys.
std::map<std::string, std::string> values_in(const std::string& ini) {
  std::map<std::string, std::string> values;
  std::string section;
  for (std::size_t begin = 0, next = 0; begin < ini.size(); begin = next + 1) {
    next = std::min(ini.find('\n', begin), ini.size());
    const std::string line = ini.substr(begin, next - begin);
    const std::size_t equals = line.find(" =");
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    if (line.starts_with('[') || line.starts_with('#') || equals == std::string::npos) continue;
    const std::size_t end = line.rfind("  # ");
    std::string& value = values[section + line.substr(0, equals)];
    value += (value.empty() ? "" : "; ") + trimmed(line.substr(equals + 2, end - equals - 2));
  }
  return values;
}

using Level = Reproducibility::Degree;

/// The effect of a change of a key on the next steps. Keys that other components compare are not here.
Level effect_of(const std::string& key) {
  static const std::set<std::string> paths = {"model.from", "model.file"};
  static const std::set<std::string> keys = {"data.shuffle", "train.clip_norm", "train.clip_norm_type",
                                             "train.clip_value"};
  if (key == "train.micro_batch") return Level::order;
  const std::string section = key.substr(0, key.find('.') + 1);
  const bool is_of_training = section == "model." || section == "loss." || section == "optim." || section == "sched.";
  return keys.contains(key) || (is_of_training && !paths.contains(key)) ? Level::statistical : Level::bitwise;
}

class OriginState : public Stateful {
 public:
  OriginState(Run& run, std::string config_ini) : run_(&run), config_ini_(std::move(config_ini)) {}

  std::string name() const override { return "origin"; }

  void capture(const StateWriter& writer) override {
    const RunOrigin& origin = run_->origin;
    writer.set("/", "parent_digest", origin.parent_digest);
    writer.set("/", "run_id", origin.run_id);
    writer.put("/meta/config_ini", checkpoints::text_array(config_ini_));
    writer.put("/meta/env_json", checkpoints::text_array(origin.environment_json));
    writer.put("/meta/lineage", checkpoints::text_array(origin.lineage));
    writer.put(kStoredTask, checkpoints::text_array(task_json(run_->data.splits().train->task())));
    for (const auto& [name, value] : run_->extra) writer.set(kExtra, name, value);
  }

  /// The names that this start sets keep their values.
  void restore(const Archive& archive, const RestoreOptions&) override {
    for (const auto& [name, value] : archive.attributes_of(kExtra)) {
      if (const auto* const text = std::get_if<std::string>(&value)) run_->extra.emplace(name, *text);
    }
  }

 private:
  Run* run_;
  std::string config_ini_;
};

/// Lines on one line, for a sentence.
std::string in_sentence(std::string lines) {
  for (std::size_t position = lines.find('\n'); position != std::string::npos; position = lines.find('\n'))
    lines.replace(position, 1, "; ");
  return lines;
}

class DataState : public Stateful {
 public:
  explicit DataState(const data::Dataset& train)
      : transform_(joined(data::transform_of(train), "\n")), statistics_(data::statistics_of(train)) {}

  std::string name() const override { return "data"; }

  void capture(const StateWriter& writer) override {
    if (!transform_.empty()) writer.put(kTransform, checkpoints::text_array(transform_));
    if (!statistics_) return;
    writer.put(kStatisticsMean, array_of(statistics_->mean, DType::float64));
    writer.put(kStatisticsStd, array_of(statistics_->std, DType::float64));
  }

  /// The data of the run were opened with the statistics of the checkpoint.
  void restore(const Archive&, const RestoreOptions&) override {}

  Reproducibility reproducibility(const Archive& archive, const RestoreOptions&) override {
    return worst_of({by_transform(archive), by_statistics(archive)});
  }

 private:
  Reproducibility by_transform(const Archive& archive) const {
    if (!archive.has(kTransform)) return {};
    const std::string was = checkpoints::text_of(archive.array(kTransform));
    if (was == transform_) return {};
    return {Reproducibility::Degree::statistical,
            "data.transform is '" + in_sentence(transform_) + "' and was '" + in_sentence(was) + "'"};
  }

  /// Statistics of another checkpoint than the one that resumed_statistics read.
  Reproducibility by_statistics(const Archive& archive) const {
    const auto stored = stored_statistics(archive);
    if (!stored || !statistics_ || (stored->mean == statistics_->mean && stored->std == statistics_->std)) return {};
    return {Reproducibility::Degree::statistical, "the statistics of normalize,mean=auto differ"};
  }

  std::string transform_;  // one line for each transform; empty = the source has none
  std::optional<data::ChannelStatistics> statistics_;
};

}  // namespace

std::shared_ptr<Stateful> origin_state(Run& run, std::string config_ini) {
  return std::make_shared<OriginState>(run, std::move(config_ini));
}

Reproducibility by_settings(const std::string& config_ini, const Archive& archive) {
  if (config_ini.empty()) return {};
  const auto was = values_in(checkpoints::text_of(archive.array("/meta/config_ini")));
  std::vector<Reproducibility> all;
  for (const auto& [key, value] : values_in(config_ini)) {
    const auto old = was.find(key);
    if (old == was.end() || old->second == value) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "empty" : text; };
    all.push_back({effect_of(key), key + " is " + shown(value) + " and was " + shown(old->second)});
  }
  return worst_of(all);
}

std::shared_ptr<Stateful> data_state(Run& run) { return std::make_shared<DataState>(*run.data.splits().train); }

}  // namespace lockstep::engine
