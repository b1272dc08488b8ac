// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/predictor.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "engine/evaluation/batch_loop.hpp"
#include "engine/evaluation/predictions.hpp"
#include "report/files/run_files.hpp"
#include "trainer/predict/array_rows.hpp"
#include "trainer/predict/page.hpp"
#include "trainer/predict/part_files.hpp"
#include "trainer/predict/sample_text.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;

std::string unfinished(const std::string& masks) {
  return (masks.ends_with('/') ? masks.substr(0, masks.size() - 1) : masks) + ".unfinished";
}

void require_masks(const engine::BatchPredictions& predictions, const PredictSettings& settings, std::int64_t classes) {
  if (settings.masks.value.empty()) return;
  if (!predictions.masks.defined()) {
    throw ConfigError(settings.masks.cite + ": the model does not predict masks; remove the key");
  }
  if (classes > 256) {
    throw ConfigError(settings.masks.cite + ": PNG files hold up to 256 classes, but the model has " +
                      std::to_string(classes) + "; write one .npy file instead");
  }
}

/// The file that the batches of this rank are written to.
class Writer {
 public:
  Writer(const PredictSettings& settings, const engine::LoadedModel& loaded, const data::Dataset& dataset,
         std::int64_t count)
      : settings_(&settings),
        form_(form_of(settings.out)),
        loaded_(&loaded),
        dataset_(&dataset),
        count_(count),
        part_(settings.out.value, loaded.resources.world.rank()),
        text_(settings, form_, loaded.task, dataset) {
    if (!settings.page.value.empty()) page_.emplace(settings, loaded.task, dataset);
  }

  void write(const batch::Batch& given) {
    if (settings_->wants_features) return write_rows(engine::features_of_batch(*loaded_->model.wrapper, given));
    const Task& task = loaded_->task;
    const engine::BatchPredictions predictions = engine::predict_batch(*loaded_->model.wrapper, given, task, *dataset_);
    require_masks(predictions, *settings_, task.classes);
    if (form_ == PredictionForm::npy) {
      write_rows(array_rows(predictions, task.classes));
    } else {
      if (begins_file()) part_.write(text_.header(predictions, given));
      part_.write(text_.lines(predictions, given));
      has_begun_ = true;
    }
    if (!settings_->masks.value.empty()) write_masks(predictions);
    if (page_) page_->add(predictions, given);
  }

  std::int64_t close() { return part_.close(); }
  const std::optional<PageSamples>& page() const { return page_; }

 private:
  bool begins_file() const { return !has_begun_ && loaded_->resources.world.is_root(); }

  void write_rows(const at::Tensor& rows) {
    if (begins_file()) part_.write(npy_header(rows, count_));
    const std::vector<std::int64_t> shape = rows.sizes().slice(1).vec();
    if (has_begun_ && shape != shape_) {
      throw DataError(
          "the predictions have rows of different shapes, which one .npy file cannot hold; use transforms "
          "that give all samples one size");
    }
    shape_ = shape;
    has_begun_ = true;
    part_.write(bytes_of_rows(rows));
  }

  void write_masks(const engine::BatchPredictions& predictions) const {
    for (std::int64_t i = 0; i < predictions.size(); ++i) {
      const std::int64_t index = predictions.indices[static_cast<std::size_t>(i)];
      report::write_text(unfinished(settings_->masks.value) + "/" + mask_name(index), mask_png(predictions.masks[i]));
    }
  }

  const PredictSettings* settings_;
  PredictionForm form_;
  const engine::LoadedModel* loaded_;
  const data::Dataset* dataset_;
  std::int64_t count_;
  PartFile part_;
  SampleText text_;
  std::optional<PageSamples> page_;
  bool has_begun_ = false;
  std::vector<std::int64_t> shape_;
};

/// Deletes the unfinished folder of masks of a run that fails.
class MaskFolder {
 public:
  MaskFolder(const mpi::Communicator& world, const Cited<std::string>& masks) : masks_(masks) {
    if (masks_.value.empty()) return;
    is_owner_ = world.is_root();
    world.all_or_throw([&] {
      if (!is_owner_) return;
      std::error_code failure;
      fs::remove_all(unfinished(masks_.value), failure);
      fs::create_directories(unfinished(masks_.value), failure);
      if (failure) throw ConfigError(masks_.cite + ": " + masks_.value + " cannot be created: " + failure.message());
    });
  }
  ~MaskFolder() {
    std::error_code ignored;
    if (is_owner_) fs::remove_all(unfinished(masks_.value), ignored);
  }
  MaskFolder(const MaskFolder&) = delete;
  MaskFolder& operator=(const MaskFolder&) = delete;

  void publish() {
    if (!is_owner_) return;
    std::error_code failure;
    fs::rename(unfinished(masks_.value), masks_.value, failure);
    if (failure) throw ConfigError(masks_.cite + ": " + masks_.value + " cannot be created: " + failure.message());
    is_owner_ = false;
  }

 private:
  Cited<std::string> masks_;
  bool is_owner_ = false;
};

std::vector<std::vector<std::string>> facts_of(const engine::LoadedModel& loaded, std::int64_t count) {
  return {{"weights", weights_text(loaded)}, {"samples", std::to_string(count)}};
}

}  // namespace

std::string weights_text(const engine::LoadedModel& loaded) {
  const bool is_checkpoint = loaded.step > 0;
  return std::string(loaded.is_average ? "averaged weights" : "weights") +
         (is_checkpoint ? " of step " + std::to_string(loaded.step) : "") + " from " + loaded.source;
}

void require_writable(const mpi::Communicator& world, const PredictSettings& settings) {
  world.all_or_throw([&] {
    if (settings.out.value.empty()) {
      throw ConfigError("predict.out is not set; name the output file, such as predictions.jsonl");
    }
    const PredictionForm form = form_of(settings.out);
    if (settings.wants_features && form != PredictionForm::npy) {
      throw ConfigError(settings.out.cite + ": features are written as one array; use a file that ends in .npy");
    }
    if (settings.wants_features && !(settings.masks.value + settings.page.value).empty()) {
      throw ConfigError("predict.output=features cannot be combined with predict.masks and predict.html; remove them");
    }
    if (!world.is_root()) return;
    std::error_code unreadable;
    for (const Cited<std::string>& file : {settings.out, settings.page}) {
      if (file.value.empty()) continue;
      if (fs::is_directory(file.value, unreadable)) {
        throw ConfigError(file.cite + ": '" + file.value + "' is a folder; name a file");
      }
      const fs::path folder = fs::path(file.value).parent_path();
      if (!folder.empty() && !fs::is_directory(folder, unreadable)) {
        throw ConfigError(file.cite + ": the folder '" + folder.string() + "' does not exist; create it");
      }
    }
    const std::string& masks = settings.masks.value;
    const bool is_taken = !masks.empty() && fs::exists(masks, unreadable) &&
                          !(fs::is_directory(masks, unreadable) && fs::is_empty(masks, unreadable));
    if (is_taken) throw ConfigError(settings.masks.cite + ": '" + masks + "' exists; delete it or name a new folder");
  });
}

const data::Dataset& predicted_split(const data::Splits& splits, const Section& predict,
                                     const Cited<std::string>& eval_split) {
  const Cited<std::string> wanted = cited_text(predict, "split");
  if (wanted.value != "auto") return engine::split_of(splits, wanted);
  const bool is_missing = (eval_split.value == "val" && !splits.val) || (eval_split.value == "test" && !splits.test);
  return is_missing ? *splits.train : engine::split_of(splits, eval_split);
}

std::int64_t write_predictions(const mpi::Communicator& world, engine::LoadedModel& loaded,
                               const data::Dataset& dataset, const engine::EvaluationLimits& limits,
                               const PredictSettings& settings) {
  const std::int64_t count = std::min(dataset.size(), engine::batches_of(dataset, limits) * limits.batch_size);
  const std::string& out = settings.out.value;
  MaskFolder masks(world, settings.masks);
  std::optional<Writer> writer;
  world.all_or_throw([&] {
    if (world.is_root()) remove_parts(out);
  });
  world.all_or_throw([&] { writer.emplace(settings, loaded, dataset, count); });
  engine::for_each_batch(world, *loaded.model.wrapper, dataset, limits, "predictions",
                         [&](std::int64_t, const batch::Batch& given) { writer->write(given); });
  std::int64_t size = 0;
  world.all_or_throw([&] { size = writer->close(); });
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::int64_t>(&size, 1), std::span(sizes));
  std::string page;
  if (writer->page()) page = writer->page()->page(world, facts_of(loaded, count));
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    join_parts(out, sizes);
    masks.publish();
    if (!page.empty()) report::write_text(settings.page.value, page);
    publish_parts(out);
  });
  return count;
}

}  // namespace lockstep::trainer
