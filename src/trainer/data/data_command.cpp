// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <filesystem>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/source/measured.hpp"
#include "data/source/roles.hpp"
#include "data/stores/image_dataset.hpp"
#include "data/stores/image_settings.hpp"
#include "data/stores/image_splits.hpp"
#include "engine/data_moments.hpp"
#include "engine/setup/run_splits.hpp"
#include "report/files/run_files.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/data/contact_sheet.hpp"
#include "trainer/data/data_speed.hpp"
#include "trainer/data/data_text.hpp"
#include "trainer/data/field_survey.hpp"
#include "trainer/data/field_text.hpp"
#include "trainer/data/image_survey.hpp"

namespace lockstep::trainer {

namespace {

/// The images that a configuration selects, and how a run would convert them.
struct ChosenImages {
  data::ImageSplits stores;
  data::Splits datasets;
  data::PipelineOptions how;  ///< options, with `lines` left empty
  std::vector<std::string> class_names = {};

  const data::Pipeline& train_pipeline() const {
    return dynamic_cast<const data::ImageDataset&>(*datasets.train).pipeline();
  }
};

class DataCommand {
 public:
  /// @param measured  the statistics of --statistics; "" = they were not measured
  DataCommand(const CommandJob& job, const config::Invocation& invocation, std::string measured)
      : registry_(job.registry),
        sections_(invocation.config.sections()),
        data_(sections_.at("data")),
        options_(invocation.options),
        source_(find_row(registry_.sources, data_.text("name"), data_.cite("name"))),
        measured_(std::move(measured)) {}

  void run() const {
    const double seconds = speed_seconds();
    if (has("list-transforms")) {
      log::result(transforms_text(registry_.transforms));
      if (has("sheet")) write_sheet(transforms_sheet());
      return;
    }
    const std::optional<ChosenImages> chosen = open_images();
    if (!chosen) {
      refuse_image_options();
      return show_samples();
    }
    const ChosenImages& images = *chosen;
    show_images(images);
    if (has("sheet")) {
      write_sheet(sheet_of_samples(*images.stores.train, images.train_pipeline(), images.how, images.class_names));
    }
    if (has("speed")) {
      const auto speeds = loading_speeds(*images.stores.train, images.train_pipeline(), images.how, seconds);
      log::result(has("json") ? speeds_json(speeds) : speeds_text(speeds) + "\n" + verdict_on(speeds));
    }
  }

 private:
  bool has(const std::string& name) const { return options_.find(name) != options_.end(); }

  double speed_seconds() const {
    if (!has("speed")) return 0;
    const auto seconds = parse_real(options_.at("speed"));
    if (seconds && *seconds > 0 && *seconds <= 3600) return *seconds;
    throw ConfigError("command line: --speed: '" + options_.at("speed") + "' is not a number of seconds up to 3600");
  }

  void refuse_image_options() const {
    for (const std::string name : {"sheet", "speed"}) {
      if (has(name)) {
        throw ConfigError("command line: --" + name + ": data.name = " + source_.name +
                          " has no image files; choose a source of images, such as folder");
      }
    }
  }

  /// @return  nullopt = the samples are no images
  std::optional<ChosenImages> open_images() const {
    std::optional<data::ImageSplits> stores = data::find_images(data_, registry_.sources);
    if (!stores) return std::nullopt;
    ChosenImages images{.stores = std::move(*stores), .datasets = {}, .how = {}};
    images.how = data::pipeline_options(data_, *images.stores.train, 0, false);
    images.class_names = images.stores.train->facts().class_names;
    if (!has("sheet") && !has("speed")) return images;
    images.datasets =
        data::with_pipelines(images.stores, data_, engine::open_options(sections_, registry_), source_.normalize);
    images.class_names = images.datasets.train->task().class_names;
    return images;
  }

  void show_images(const ChosenImages& images) const {
    DataReport report{.source = source_.name, .class_names = images.class_names};
    const auto add = [&](const std::shared_ptr<const data::ImageStore>& store, const std::string& split) {
      if (store) report.splits.push_back(survey_images(*store, split, images.how, has("check")));
    };
    add(images.stores.train, "train");
    add(images.stores.val, "val");
    if (images.stores.test != images.stores.val) add(images.stores.test, "test");
    report.is_decoded = has("check");
    report.duplicates = duplicates_of(report.splits);
    for (const Duplicate& each : report.duplicates) {
      report.duplicate_names.emplace_back(store_of(images.stores, each.first_split).name(each.first),
                                          store_of(images.stores, each.second_split).name(each.second));
    }
    try {
      report.statistics = data::measured_statistics(*images.stores.train, images.how, true);
    } catch (const DataError&) {  // all pixels are equal, or no image can be read
    }
    if (!has("json")) {
      for (const std::string& note : images.stores.notes) log::result(note);
    }
    log::result(has("json") ? report_json(report) : report_text(report));
    std::size_t bad = 0;
    for (const ImageSurvey& split : report.splits) bad += split.bad.size();
    if (bad > 0) {
      throw DataError(std::to_string(bad) + (bad == 1 ? " image" : " images") +
                      " cannot be read; exclude them with data.exclude, or set data.on_error=replace");
    }
  }

  static const data::ImageStore& store_of(const data::ImageSplits& stores, const std::string& split) {
    return split == "train" ? *stores.train : split == "val" ? *stores.val : *stores.test;
  }

  ContactSheet transforms_sheet() const {
    const data::ImageSplits stores = data::open_images(data_, registry_.sources);
    return sheet_of_transforms(*stores.train, 0, data::pipeline_options(data_, *stores.train, 0, true),
                               registry_.transforms);
  }

  void write_sheet(const ContactSheet& sheet) const {
    const std::string& path = options_.at("sheet");
    if (!path.ends_with(".html")) {
      throw ConfigError("command line: --sheet: '" + path + "' must end in .html: the sheet is a page for a browser");
    }
    report::write_text(path, sheet_page(sheet));
    if (!has("json")) log::result(path + ": " + std::to_string(sheet.cells.size()) + " pictures");
  }

  /// Sources without image files.
  void show_samples() const {
    const data::Splits splits = data::open(data_, registry_.sources, engine::open_options(sections_, registry_));
    if (const auto* const fields = data::ability_of<data::FieldDataset>(*splits.train)) {
      return show_fields(splits, *fields);
    }
    const SamplesReport report{.source = source_.name,
                               .splits = {{"train", splits.train}, {"val", splits.val}, {"test", splits.test}},
                               .text_path = source_.name == "text" ? data_.text("path") : ""};
    log::result(has("json") ? samples_json(report) : samples_text(report));
  }

  void show_fields(const data::Splits& splits, const data::FieldDataset& train) const {
    FieldParts parts = {{"train", &train}};
    const auto add = [&](const std::string& name, const std::shared_ptr<const data::Dataset>& split) {
      if (split) parts.emplace_back(name, data::ability_of<data::FieldDataset>(*split));
    };
    add("val", splits.val);
    if (splits.test != splits.val) add("test", splits.test);
    FieldReport report{.survey = survey_fields(parts, reading_keys()), .statistics = measured_, .origin = "computed"};
    report.survey.warnings.insert(report.survey.warnings.begin(), splits.notes.begin(), splits.notes.end());
    if (report.statistics.empty()) {
      report.statistics = engine::kept_statistics(train);
      report.origin = "kept in data.cache";
    }
    report.are_counted = !report.statistics.empty();
    if (report.statistics.empty()) {
      report.statistics = train.stated_statistics();
      report.origin = data_.text("statistics");
    }
    log::result(has("json") ? fields_json(report) : fields_text(report));
  }

  ReadingKeys reading_keys() const {
    const Section& model = sections_.at("model");
    return {.is_random = data_.text("sampler") != "chunks" && data_.boolean("shuffle"),
            .chunk_cache_mb = data_.real("chunk_cache_mb"),
            .open_files = data_.integer("open_files"),
            .padding = model.has("padding") ? model.text("padding") : ""};
  }

  const engine::Registry& registry_;
  const Sections& sections_;
  const Section& data_;
  const std::map<std::string, std::string>& options_;
  const data::Source& source_;
  std::string measured_;
};

/// @throws ConfigError  the statistics cannot be written there, or data.statistics cannot read them there
void require_place_of_statistics(const std::string& path) {
  if (!path.ends_with(".json")) {
    throw ConfigError("command line: --statistics: '" + path +
                      "' must end in .json, by which data.statistics recognizes it");
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code unreadable;
  if (folder.empty() || std::filesystem::is_directory(folder, unreadable)) return;
  throw ConfigError("command line: --statistics: there is no folder " + folder.string() + "; create it first");
}

/// Computes the statistics of the training part as a run does, and writes them into a file. Collective.
/// @return  the text of the file
std::string write_statistics(const CommandJob& job, const Sections& sections, const std::string& path) {
  const Section& data = sections.at("data");
  data::Splits splits;
  job.world.all_or_throw([&] {
    if (job.world.is_root()) require_place_of_statistics(path);
    const auto refuse = [&](const std::string& reason) { throw ConfigError("command line: --statistics: " + reason); };
    if (data::opens_images(data, job.registry.sources)) refuse("the statistics of images are those of data.transform");
    data::OpenOptions options = engine::open_options(sections, job.registry);
    options.used = {.val = false, .test = false};
    splits = data::open(data, job.registry.sources, options);
    const auto* const measured = data::ability_of<data::MeasuredDataset>(*splits.train);
    if (measured == nullptr) refuse("data.name = " + data.text("name") + " has no statistics; use fields");
    if (measured->parts() > 0) return;
    if (data.text("normalize") == "none") refuse("data.normalize = none needs no statistics; choose another one");
    refuse("data.statistics = " + data.text("statistics") + " states them already; set it to compute");
  });
  std::string statistics;
  engine::training_task(job.world, sections.at("model"), *splits.train, &statistics);
  job.world.all_or_throw([&] {
    if (job.world.is_root()) report::write_text(path, statistics + "\n");
  });
  return statistics;
}

}  // namespace

ExitCode describe_data(const CommandJob& job, const config::Invocation& invocation) {
  if (invocation.options.contains("json")) {  // nothing else on standard output
    log::configure({.rank = job.world.rank(), .world_size = job.world.size(), .console_level = log::Level::warning});
  }
  const auto path = invocation.options.find("statistics");
  const std::string statistics =
      path == invocation.options.end() ? "" : write_statistics(job, invocation.config.sections(), path->second);
  job.world.all_or_throw([&] {
    if (job.world.is_root()) DataCommand(job, invocation, statistics).run();
  });
  return ExitCode::done;
}

}  // namespace lockstep::trainer
