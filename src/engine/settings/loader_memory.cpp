// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/loader_memory.hpp"

#include <lockstep/core/error.hpp>

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>

#include "data/source/roles.hpp"

namespace lockstep::engine {

namespace {

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

std::vector<data::Field> loaded_layout(const data::Dataset& dataset, bool prefers_bytes) {
  const data::SampleDataset* const samples = data::ability_of<data::SampleDataset>(dataset);
  const data::SampleLayout layout = samples != nullptr ? samples->layout() : data::SampleLayout{};
  if (prefers_bytes && !layout.byte_fields.empty()) return layout.byte_fields;
  if (!layout.fields.empty()) return layout.fields;
  const Task task = dataset.task();
  return {{.name = "data", .shape = task.sample_shape, .dtype = task.is_text ? at::kLong : at::kFloat}};
}

std::string float_output_text(const Section& data, const data::Dataset& train, bool mixes) {
  const data::SampleDataset* const samples = data::ability_of<data::SampleDataset>(train);
  if (samples == nullptr || data.text("output") != "auto") return "";
  const data::SampleLayout layout = samples->layout();
  const bool has_bytes = !layout.byte_fields.empty();
  const std::string reason = has_bytes && mixes ? "train.mix changes float32 numbers" : layout.float_reason;
  return reason.empty() ? "" : "data.output = auto: batches are float32 also on a GPU, because " + reason;
}

std::int64_t batch_bytes(const std::vector<data::Field>& layout, std::int64_t rows) {
  std::int64_t bytes = 0;
  for (const data::Field& field : layout) {
    std::int64_t of_sample = static_cast<std::int64_t>(c10::elementSize(field.dtype));
    for (const std::int64_t size : field.shape) of_sample *= size;
    bytes += of_sample * rows;
  }
  return bytes;
}

LoaderMemory fitted(LoaderMemory wanted, std::int64_t min_prefetch, std::optional<std::int64_t> available, int ranks) {
  if (!available || wanted.batch_bytes <= 0) return wanted;  // sizes of a program can be unknown
  const std::int64_t batches = *available / ranks / wanted.batch_bytes - wanted.in_use;
  LoaderMemory fit = wanted;
  fit.prefetch = std::min(wanted.prefetch, batches);
  if (fit.prefetch >= min_prefetch) return fit;
  fit.prefetch = min_prefetch;
  throw ConfigError(fmt::format(
      "{} are available on this host, but {}; reduce train.global_batch_size or train.micro_batch, or use more hosts",
      megabytes(*available), loader_memory_text(fit, ranks)));
}

void require_evaluation_memory(std::int64_t batch_bytes, std::int64_t batches, std::optional<std::int64_t> available,
                               int ranks) {
  if (!available || batch_bytes <= *available / ranks / batches) return;
  throw ConfigError(
      fmt::format("{} are available on this host for {} ranks, but each holds {} batches of {} while it "
                  "evaluates; reduce eval.batch_size",
                  megabytes(*available), ranks, batches, megabytes(batch_bytes)));
}

std::string loader_memory_text(const LoaderMemory& memory, int ranks) {
  std::string text = fmt::format("the loader of a rank holds up to {} batches of {} (data.prefetch = {}): {}",
                                 memory.prefetch + memory.in_use, megabytes(memory.batch_bytes), memory.prefetch,
                                 megabytes(memory.bytes()));
  if (ranks > 1) text += fmt::format(", {} ranks of a host {}", ranks, megabytes(memory.bytes() * ranks));
  return text;
}

}  // namespace lockstep::engine
