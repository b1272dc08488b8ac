// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/given_arrays.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "core/text/text.hpp"
#include "data/source/hash.hpp"
#include "data/source/roles.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

// Positions of a run that has no epochs. Progress and schedules count them; no sample has a number.
constexpr std::int64_t kEndless = std::int64_t{1} << 60;

[[noreturn]] void refuse() {
  throw ConfigError(
      "data.name = arrays: samples come from the program that calls Lockstep as a library (see docs/simulations.md), "
      "so "
      "that `trainer` cannot read them; set data.name to the source of your data");
}

/// Samples that the program hands over step by step: the data set only describes them.
class GivenArrays : public Dataset {
 public:
  GivenArrays(Task task, batch::Roles roles) : task_(std::move(task)), roles_(std::move(roles)) {}

  std::int64_t size() const override { return kEndless; }
  Task task() const override { return task_; }
  batch::Batch get(std::span<const batch::Draw>) const override { refuse(); }
  batch::Roles roles() const override { return roles_; }
  std::uint64_t digest() const override { return hash_of({static_cast<std::uint64_t>(kEndless)}); }

 private:
  Task task_;
  batch::Roles roles_;
};

std::vector<std::string> names_in(const Section& data, const char* key, const char* usual) {
  std::vector<std::string> names = words_in(data.text(key));
  return names.empty() ? std::vector<std::string>{usual} : names;
}

struct KindRow {
  TaskKind kind;
  std::string name;
};

const std::vector<KindRow>& kinds() {
  static const std::vector<KindRow> rows = {{TaskKind::regression, "regression"},
                                            {TaskKind::classification, "classification"},
                                            {TaskKind::multilabel, "multilabel"},
                                            {TaskKind::segmentation, "segmentation"}};
  return rows;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const KindRow& row : kinds()) names.push_back(row.name);
  return names;
}

TaskKind kind_of(const Section& data) { return std::ranges::find(kinds(), data.text("kind"), &KindRow::name)->kind; }

void require_shape(const Section& data, const char* key, const char* of_what) {
  if (!data.integers(key).empty()) return;
  throw ConfigError(data.full_name(key) + " is not set; data.name = arrays needs the shape of one " + of_what +
                    ", such as 3,64,64");
}

Task task_of(const Section& data) {
  Task task{.sample_shape = data.integers("input_shape"), .kind = kind_of(data)};
  task.has_weights = !data.text("weight_key").empty();
  require_shape(data, "input_shape", "input");
  if (data.boolean("normalizes")) {
    const auto channels = static_cast<std::size_t>(task.sample_shape.front());
    task.fields.scaling.input_shift.assign(channels, 0);
    task.fields.scaling.input_scale.assign(channels, 1);
  }
  if (task.kind != TaskKind::regression) {
    task.classes = data.integer("classes");
    if (task.classes >= 1) return task;
    throw ConfigError(data.cite("classes") + ": data.kind = " + data.text("kind") + " needs the number of classes");
  }
  require_shape(data, "target_shape", "target");
  const std::vector<std::int64_t> shape = data.integers("target_shape");
  task.classes = shape.front();
  if (data.boolean("normalizes")) {
    task.fields.scaling.target_shift.assign(static_cast<std::size_t>(shape.front()), 0);
    task.fields.scaling.target_scale.assign(static_cast<std::size_t>(shape.front()), 1);
  }
  if (shape.size() == 1) return task;
  // Channels first, as the inputs have them.
  static constexpr std::array kAxes = {"z", "y", "x"};
  if (shape.size() > kAxes.size() + 1) {
    throw ConfigError(data.cite("target_shape") + ": a target has one to four dimensions, channels first");
  }
  for (std::int64_t channel = 0; channel < shape.front(); ++channel) {
    task.fields.channels.push_back("target" + std::to_string(channel));
  }
  task.fields.units.resize(task.fields.channels.size());
  task.fields.axes.assign(kAxes.end() - static_cast<std::ptrdiff_t>(shape.size() - 1), kAxes.end());
  task.fields.coordinates.resize(task.fields.axes.size());
  return task;
}

}  // namespace

const std::string& name_of_kind(TaskKind kind) {
  const auto found = std::ranges::find(kinds(), kind, &KindRow::kind);
  return found == kinds().end() ? kinds().front().name : found->name;
}

void require_readable(const Dataset& dataset) {
  if (ability_of<GivenArrays>(dataset) != nullptr) refuse();
}

Source arrays_source() {
  return {
      .name = "arrays",
      .help = "Arrays of a program that calls Lockstep as a library; not for `trainer`",
      .keys = {keys::choice("data.kind", "regression", "arrays: kind of the task", kind_names()),
               keys::integers("data.input_shape", "",
                              "arrays: shape of the first input of a sample, such as 3,64,64 (channels first)", 1),
               keys::integers("data.target_shape", "",
                              "arrays: shape of the target of a sample of a regression (channels first)", 1),
               keys::text("data.join_keys", "",
                          "arrays: names of arrays that are joined along their first dimension, the channels, into "
                          "the input; with commas between them"),
               keys::text("data.weight_key", "",
                          "arrays: name of the array with one number per sample that weights its loss, as "
                          "data.weight_array does; empty = all samples count alike"),
               keys::text("data.mask_key", "mask",
                          "arrays: name of the array that is 0 where a target does not count in the loss; it has the "
                          "shape of the targets, or 1 for channels and axes"),
               keys::expert(keys::boolean("data.normalizes", "false",
                                          "arrays: the model normalizes channels; set by buffer.statistics")),
               classes_key()},
      .open = [](const Section& data) {
        batch::Roles roles{.inputs = names_in(data, "input_keys", "input"),
                           .targets = names_in(data, "target_keys", "target")};
        return Splits{.train = std::make_shared<GivenArrays>(task_of(data), std::move(roles))};
      }};
}

}  // namespace lockstep::data
