// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/predictor.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/system/process.hpp"
#include "engine/evaluation/batch_loop.hpp"
#include "engine/evaluation/predictions.hpp"
#include "engine/setup/rollout.hpp"
#include "report/files/image.hpp"
#include "report/files/run_files.hpp"
#include "trainer/predict/fields_file.hpp"
#include "trainer/predict/page.hpp"
#include "trainer/predict/sample_text.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;

// ---- A file that all ranks write together: each rank writes a part next to it, and the root joins the parts. ----

using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

constexpr std::size_t kBufferBytes = 1 << 20;

std::string part_of(const std::string& path, int rank) { return fmt::format("{}.part-{:05}", path, rank); }

ConfigError write_error(const std::string& path, int reason) {
  return ConfigError(path + " cannot be written: " + std::strerror(reason));
}

OpenFile open_file(const std::string& path, const char* mode) {
  OpenFile file(std::fopen(path.c_str(), mode), std::fclose);
  if (file) std::setvbuf(file.get(), nullptr, _IOFBF, kBufferBytes);
  return file;
}

/// Appends a whole file to another one.
void append(const std::string& path, const std::string& part, std::int64_t size, std::FILE* out) {
  const OpenFile in = open_file(part, "re");
  std::string block(kBufferBytes, '\0');
  std::int64_t copied = 0;
  while (const std::size_t got = in ? std::fread(block.data(), 1, block.size(), in.get()) : 0) {
    copied += static_cast<std::int64_t>(got);
    if (std::fwrite(block.data(), 1, got, out) != got) throw write_error(path, errno);
  }
  const bool is_read = in && std::ferror(in.get()) == 0;
  if (is_read && copied == size) return;
  throw ConfigError(part +
                    (is_read ? " is incomplete on rank 0" : std::string(" cannot be read: ") + std::strerror(errno)) +
                    "; the folder of the output must be shared by all ranks");
}

/// The part of one rank: <path>.part-00002. It is deleted with the object, unless the root has joined it.
class PartFile {
 public:
  /// @throws ConfigError  the file cannot be created, with the reason
  PartFile(const std::string& path, int rank);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// @throws ConfigError  the bytes cannot be written, with the reason
  void write(std::string_view bytes);
  /// Writes what is buffered, and closes the file.
  /// @return  the size of the part in bytes
  std::int64_t close();

 private:
  std::string path_;  // path of the joined file, for messages
  std::string part_;
  OpenFile file_;
  std::int64_t size_ = 0;
};

PartFile::PartFile(const std::string& path, int rank)
    : path_(path), part_(part_of(path, rank)), file_(open_file(part_, "we")) {
  if (!file_) throw write_error(path_, errno);
}

PartFile::~PartFile() { ::unlink(part_.c_str()); }

void PartFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) throw write_error(path_, errno);
  size_ += static_cast<std::int64_t>(bytes.size());
}

std::int64_t PartFile::close() {
  if (std::fclose(file_.release()) != 0) throw write_error(path_, errno);
  return size_;
}

/// Deletes the parts that an earlier run left. On the root, before the parts are created.
void remove_parts(const std::string& path) {
  const fs::path whole(path);
  const std::string start = whole.filename().string() + ".part-";
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    const bool is_part = name.starts_with(start) && name.size() == start.size() + 5 &&
                         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(start.size()), name.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
    if (is_part) fs::remove(entry.path(), unreadable);
  }
}

/// Appends the parts of the other ranks to that of the root, and makes the result durable. It becomes the file with
/// publish_parts. On the root.
/// @param sizes  of all parts, in rank order
/// @throws ConfigError  a part cannot be read, or the result cannot be written
void join_parts(const std::string& path, const std::vector<std::int64_t>& sizes) {
  const OpenFile out = open_file(part_of(path, 0), "ae");
  if (!out) throw write_error(path, errno);
  for (std::size_t rank = 1; rank < sizes.size(); ++rank) {
    append(path, part_of(path, static_cast<int>(rank)), sizes[rank], out.get());
  }
  if (std::fflush(out.get()) != 0 || ::fsync(::fileno(out.get())) != 0) throw write_error(path, errno);
}

/// Replaces the file by the joined parts. On the root.
void publish_parts(const std::string& path) {
  if (std::rename(part_of(path, 0).c_str(), path.c_str()) != 0) throw write_error(path, errno);
}

// ---- Predictions as rows of one NumPy array. ----

constexpr std::int64_t kMaxByteClasses = 256;
constexpr std::size_t kAlignment = 64;

std::string type_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "|u1";
    case at::kInt:
      return "<i4";
    case at::kLong:
      return "<i8";
    case at::kDouble:
      return "<f8";
    default:
      return "<f4";
  }
}

/// The rows of a batch: probabilities float32 [N, C], values of a regression, or masks uint8 (int32 with more than 256
/// classes) [N, H, W].
/// @throws ConfigError  the kind of the task has no such array
at::Tensor array_rows(const engine::BatchPredictions& predictions, std::int64_t classes) {
  if (predictions.probabilities.defined()) return predictions.probabilities.to(at::kFloat).contiguous();
  if (predictions.masks.defined()) {
    return predictions.masks.to(classes > kMaxByteClasses ? at::kInt : at::kByte).contiguous();
  }
  if (predictions.values.defined()) {
    const bool is_double = predictions.values.scalar_type() == at::kDouble;
    return predictions.values.to(is_double ? at::kDouble : at::kFloat).contiguous();
  }
  throw ConfigError("predict.out: the predictions of this model are not one array; use a file that ends in .jsonl");
}

/// The bytes of a tensor in row-major order.
std::string bytes_of_rows(const at::Tensor& rows) {
  const at::Tensor whole = rows.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

/// The header of a .npy file (version 1.0).
/// @param rows   some rows, which define type and shape
/// @param count  number of rows of the array
std::string npy_header(const at::Tensor& rows, std::int64_t count) {
  std::string shape = std::to_string(count) + ",";
  for (std::int64_t d = 1; d < rows.dim(); ++d) shape += " " + std::to_string(rows.size(d)) + ",";
  if (rows.dim() > 1) shape.pop_back();
  std::string text =
      "{'descr': '" + type_of(rows.scalar_type()) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::string magic("\x93NUMPY\x01\x00", 8);
  while ((magic.size() + 2 + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  const std::string length = {static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return magic + length + text;
}

/// A PNG file with class numbers as gray pixels.
/// @param mask  [H, W] int64 in [0, 255]
std::string mask_png(const at::Tensor& mask) {
  const at::Tensor pixels = mask.to(at::kByte).unsqueeze(-1).expand({mask.size(0), mask.size(1), 3}).contiguous();
  Picture image{.name = "", .height = mask.size(0), .width = mask.size(1)};
  const auto* const begin = pixels.const_data_ptr<std::uint8_t>();
  image.pixels.assign(begin, begin + pixels.numel());
  return report::png_of(image).bytes;
}

// ---- Writing predictions. ----

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

FieldsFileOptions fields_options(const PredictSettings& settings, const engine::LoadedModel& loaded,
                                 std::int64_t count) {
  return {.path = settings.out.value,
          .part = part_of(settings.out.value, 0),
          .cite = settings.out.cite,
          .source = "Lockstep " + version() + ", " + weights_text(loaded),
          .count = count};
}

/// The task of the model, with the channels of all steps that are written.
Task task_of_output(const engine::LoadedModel& loaded, const PredictSettings& settings) {
  Task task = loaded.task;
  task.classes *= std::max<std::int64_t>(settings.rollout.value, 1);
  return task;
}

/// The windows that are predicted: those of the data set, or rollouts that begin with them.
std::shared_ptr<const data::Dataset> predicted_windows(const engine::LoadedModel& loaded, const data::Dataset& dataset,
                                                       const Cited<std::int64_t>& rollout) {
  if (rollout.value == 0) return {std::shared_ptr<const data::Dataset>(), &dataset};
  return engine::rolled_out(
      dataset, {.passes = rollout.value, .is_forecast = true, .pass_steps = loaded.task.fields.scaling.target_steps},
      rollout.cite);
}

/// The file that the batches of this rank are written to: a part of its own, or the file of fields that all ranks
/// share.
class Writer {
 public:
  /// Collective.
  /// @param dataset  rolled out by predict.rollout
  Writer(const PredictSettings& settings, const engine::LoadedModel& loaded, const data::Dataset& dataset,
         std::int64_t count)
      : settings_(&settings),
        form_(form_of(settings.out)),
        loaded_(&loaded),
        task_(task_of_output(loaded, settings)),
        dataset_(&dataset),
        count_(count),
        text_(settings, form_, task_, dataset) {
    if (settings.rollout.value > 0) {
      ends_.emplace(dataset.size(), task_.fields.scaling.target_steps * settings.rollout.value, task_.fields.scaling);
    }
    const mpi::Communicator& world = loaded.resources.world;
    if (form_ == PredictionForm::netcdf) {
      fields_.emplace(world, dataset, task_, fields_options(settings, loaded, count));
    } else {
      world.all_or_throw([&] { part_.emplace(settings.out.value, world.rank()); });
    }
    if (!settings.page.value.empty()) page_.emplace(settings, task_, dataset);
  }

  void write(const batch::Batch& given) {
    if (settings_->wants_features) return write_rows(engine::features_of_batch(*loaded_->model.wrapper, given));
    const engine::BatchPredictions predictions =
        engine::predict_batch(*loaded_->model.wrapper, given, task_, *dataset_, ends_ ? &*ends_ : nullptr);
    require_masks(predictions, *settings_, task_.classes);
    if (fields_) {
      fields_->write(predictions, given);
    } else if (form_ == PredictionForm::npy) {
      write_rows(array_rows(predictions, task_.classes));
    } else {
      if (begins_file()) part_->write(text_.header(predictions, given));
      part_->write(text_.lines(predictions, given));
      has_begun_ = true;
    }
    if (!settings_->masks.value.empty()) write_masks(predictions);
    if (page_) page_->add(predictions, given);
  }

  /// Writes everything that other ranks read. Collective.
  void close() {
    const mpi::Communicator& world = loaded_->resources.world;
    if (ends_) {
      ends_->sum_over_ranks(*loaded_->resources.collectives);
      const bool is_warned = ends_->first_step() > 0 && world.is_root();
      if (is_warned) log::warning(ends_->text(*dataset_, "the values of that step and of later ones are NaN"));
    }
    if (fields_) return world.all_or_throw([&] { fields_->close(); });
    std::int64_t size = 0;
    world.all_or_throw([&] { size = part_->close(); });
    sizes_.resize(static_cast<std::size_t>(world.size()));
    world.all_gather(std::span<const std::int64_t>(&size, 1), std::span(sizes_));
  }
  /// Completes the file, which other programs cannot see yet. The root calls it.
  void join() { fields_ ? fields_->finish() : join_parts(settings_->out.value, sizes_); }
  /// Gives the file its name. The root calls it.
  void publish() { fields_ ? fields_->publish() : publish_parts(settings_->out.value); }
  const std::optional<PageSamples>& page() const { return page_; }

 private:
  bool begins_file() const { return !has_begun_ && loaded_->resources.world.is_root(); }

  void write_rows(const at::Tensor& rows) {
    if (begins_file()) part_->write(npy_header(rows, count_));
    const std::vector<std::int64_t> shape = rows.sizes().slice(1).vec();
    if (has_begun_ && shape != shape_) {
      throw DataError(
          "the predictions have rows of different shapes, which one .npy file cannot hold; use transforms "
          "that give all samples one size");
    }
    shape_ = shape;
    has_begun_ = true;
    part_->write(bytes_of_rows(rows));
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
  Task task_;
  const data::Dataset* dataset_;
  std::int64_t count_;
  std::optional<PartFile> part_;
  std::optional<FieldsFile> fields_;
  std::optional<engine::RolloutEnds> ends_;
  SampleText text_;
  std::optional<PageSamples> page_;
  bool has_begun_ = false;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> sizes_;  ///< those of the parts in bytes, in rank order
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
    if (settings.wants_features && settings.rollout.value > 0) {
      throw ConfigError("predict.output=features cannot be combined with predict.rollout; remove one of them");
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

std::int64_t write_predictions(const mpi::Communicator& world, engine::LoadedModel& loaded, const data::Dataset& split,
                               const engine::EvaluationLimits& limits, const PredictSettings& settings) {
  std::shared_ptr<const data::Dataset> windows;
  world.all_or_throw([&] { windows = predicted_windows(loaded, split, settings.rollout); });
  const data::Dataset& dataset = *windows;
  const std::int64_t count = std::min(dataset.size(), engine::batches_of(dataset, limits) * limits.batch_size);
  MaskFolder masks(world, settings.masks);
  world.all_or_throw([&] {
    if (world.is_root()) remove_parts(settings.out.value);
  });
  Writer writer(settings, loaded, dataset, count);
  engine::for_each_batch(world, *loaded.model.wrapper, dataset, limits, "predictions",
                         [&](std::int64_t, const batch::Batch& given) { writer.write(given); });
  writer.close();
  std::string page;
  if (writer.page()) page = writer.page()->page(world, facts_of(loaded, count));
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    writer.join();
    masks.publish();
    if (!page.empty()) report::write_text(settings.page.value, page);
    writer.publish();
  });
  return count;
}

}  // namespace lockstep::trainer
