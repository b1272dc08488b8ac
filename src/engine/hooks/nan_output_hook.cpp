// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <fmt/format.h>
#include <torch/types.h>

#include <exception>

#include "checkpoints/foreign/foreign.hpp"
#include "engine/hooks/hook_rows.hpp"
#include "engine/settings/run_settings.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxNamed = 8;

/// Which of the samples, along the first dimension, hold something that is not finite.
std::vector<std::int64_t> faulty_rows(const at::Tensor& output) {
  const at::Tensor is_faulty = at::isfinite(output).logical_not();
  const at::Tensor rows = output.dim() == 0 ? is_faulty.view({1}) : is_faulty.flatten(1 < output.dim() ? 1 : 0);
  const at::Tensor places = (rows.dim() > 1 ? rows.any(1) : rows).nonzero().flatten().cpu();
  return {places.const_data_ptr<std::int64_t>(), places.const_data_ptr<std::int64_t>() + places.numel()};
}

/// Remembers the first such output of this rank; all ranks hear of it with the step, or after the evaluation.
class NanOutputHook : public Hook {
 public:
  NanOutputHook(std::string folder, bool dumps)
      : Hook(HookReads::nothing()), folder_(std::move(folder)), dumps_(dumps) {}

  void on_forward(RunView& run, const LastBatch& batch) override {
    if (!fault_.empty()) return;
    for (const auto& [name, output] : batch.outputs.entries()) {
      if (!output.is_floating_point() || at::isfinite(output).all().item<bool>()) continue;
      fault_ = describe(run, batch, output);
      if (dumps_) fault_ += dump(run, batch);
      return;
    }
  }

  void before_agreement(RunView& run) override {
    if (!fault_.empty()) run.requests.fail(std::make_exception_ptr(NumericError(fault_)));
  }

  void after_evaluation(RunView& run, const Measured&) override {
    run.world.all_or_throw([this] {
      if (!fault_.empty()) throw NumericError(fault_);
    });
  }

 private:
  static std::string describe(const RunView& run, const LastBatch& batch, const at::Tensor& output) {
    const Progress& progress = run.progress;
    const std::vector<std::int64_t> rows = faulty_rows(output);
    const std::vector<batch::Draw>& draws = batch.given->draws();
    std::vector<std::int64_t> samples;
    for (const std::int64_t row : rows) {
      const auto place = static_cast<std::size_t>(row);
      samples.push_back(place < draws.size() ? draws[place].index : row);
    }
    std::string names;
    for (std::size_t i = 0; i < samples.size() && i < kMaxNamed; ++i) {
      names += (i == 0 ? "" : ", ") + std::to_string(samples[i]);
    }
    if (samples.size() > kMaxNamed) names += ", ...";
    return fmt::format("the model's output is not finite {} for {} of {} samples: {} {}",
                       batch.is_training ? fmt::format("at step {}", progress.step + 1)
                                         : fmt::format("in an evaluation after step {}", progress.step),
                       rows.size(), output.dim() == 0 ? 1 : output.size(0),
                       draws.empty() ? "positions in the batch" : "samples", names);
  }

  /// @return  where it is
  std::string dump(RunView& run, const LastBatch& batch) const {
    const std::string path =
        fmt::format("{}/nan_output-step{:012}-rank{:05}.safetensors", folder_, run.progress.step + 1, run.world.rank());
    std::vector<checkpoints::NamedArray> arrays;
    for (const auto& [name, value] : batch.given->values()) {
      if (value.is<at::Tensor>()) arrays.push_back({"batch." + name, array_of(value.as<at::Tensor>(), name)});
    }
    for (std::size_t i = 0; i < batch.outputs.entries().size(); ++i) {
      const auto& [name, tensor] = batch.outputs.entries()[i];
      const bool is_of_list = batch.outputs.list(name).size() > 1;
      arrays.push_back({is_of_list ? fmt::format("{}.{}", name, i) : name, array_of(tensor, name)});
    }
    try {
      checkpoints::write_foreign(path, checkpoints::ExportKind::safetensors, arrays, {},
                                 checkpoints::IfExists::replace);
      return "; the batch is in " + path;
    } catch (const Error& error) {
      return std::string("; the batch could not be written: ") + error.what();
    }
  }

  std::string folder_;
  bool dumps_;
  std::string fault_;
};

}  // namespace

HookRow nan_output_row() {
  return {.name = "nan_output",
          .help =
              "Ends the run when an output of the model is not finite, reports its position, and writes the batch to "
              "run.dir",
          .keys = {keys::boolean("dump", "true", "Write input, target and output of the batch to a file")},
          .priority = Priority::normal,
          .make = [](const Section& options, const HookContext& context) {
            return std::make_unique<NanOutputHook>(RunSettings::from(context.run.at("run")).dir,
                                                   options.boolean("dump"));
          }};
}

}  // namespace lockstep::engine
