// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/block.hpp>
#include <lockstep/models/model.hpp>

#include <c10/util/Exception.h>
#include <fnmatch.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "core/system/block_memory.hpp"
#include "core/system/memory.hpp"
#include "core/system/status_line.hpp"
#include "core/text/text.hpp"
#include "models/layers/field_normalization.hpp"
#include "models/layers/taps.hpp"

namespace lockstep::models {

namespace {

thread_local const ScopedTap* innermost_tap = nullptr;  // which runs first

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

/// "model.blocks.2" for messages.
std::string text_of(const Block& block) { return "model" + (block.path().empty() ? "" : "." + block.path()); }

/// The result that `forward` of a block returns. Its refusals name the block, and so does the status of the process
/// meanwhile.
template <class Forward>
auto named(const Block& block, const Forward& forward) {
  const char* const outer = set_block(block.path().c_str());
  count_growth(outer);
  try {
    auto result = forward();
    count_growth(block.path().c_str());
    set_block(outer);
    return result;
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw;
    throw ConfigError(text_of(block) + ": " + first_line(error.what_without_backtrace()));
  }
}

Tensors run_through(const ScopedTap* tap, Block& block, const Tensors& inputs) {
  if (tap == nullptr) return named(block, [&] { return block.forward_tensors(inputs); });
  return tap->tap()(block, inputs,
                    [&block, tap](const Tensors& inner) { return run_through(tap->outer(), block, inner); });
}

/// @param pattern  in which `*` does not match a dot
bool matches(std::string pattern, std::string path) {
  std::replace(pattern.begin(), pattern.end(), '.', '/');
  std::replace(path.begin(), path.end(), '.', '/');
  return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME | FNM_NOESCAPE) == 0;
}

/// "samples 3, 17, 4, ..." for messages.
std::string samples_text(const batch::Batch& batch) {
  constexpr std::size_t kMaxNamed = 8;
  const std::vector<batch::Draw>& draws = batch.draws();
  if (draws.empty()) return "a batch of " + std::to_string(batch.size()) + " samples";
  std::string text = draws.size() == 1 ? "sample " : "samples ";
  for (std::size_t i = 0; i < std::min(draws.size(), kMaxNamed); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(draws[i].index);
  }
  return text + (draws.size() > kMaxNamed ? ", ..." : "");
}

}  // namespace

at::Tensor Block::forward(const at::Tensor&) {
  throw ConfigError(text_of(*this) + " does not implement forward for one tensor");
}

Tensors Block::forward_tensors(const Tensors& inputs) {
  if (inputs.size() == 1) return {forward(inputs.front())};
  throw ConfigError(text_of(*this) + " does not implement forward for " + std::to_string(inputs.size()) + " tensors");
}

void Block::name_blocks() {
  std::map<std::string, std::int64_t> bytes = {{"", 0}};  // size of the parameters by block
  for (const auto& child : named_modules({}, /*include_self=*/false)) {
    auto* const block = dynamic_cast<Block*>(child.value().get());
    if (block == nullptr) continue;
    block->path_ = child.key();
    bytes[child.key()] = 0;
  }
  for (const auto& parameter : named_parameters()) {
    std::string path = parameter.key();
    while (!bytes.contains(path)) path.resize(path.find_last_of('.') == path.npos ? 0 : path.find_last_of('.'));
    bytes[path] += static_cast<std::int64_t>(parameter.value().nbytes());
  }
  for (const auto& [path, size] : bytes) note_parameters(path, size);
}

at::Tensor run(Block& block, const at::Tensor& input) {
  if (innermost_tap == nullptr) return named(block, [&] { return block.forward(input); });
  return run_through(innermost_tap, block, {input}).front();
}

Tensors run(Block& block, const Tensors& inputs) { return run_through(innermost_tap, block, inputs); }

namespace {

/// One forward pass in units.
/// @param input  in place of that of the batch
batch::Outputs run_once(Model& model, const batch::Batch& batch, const at::Tensor& input) {
  const FieldNormalization& fields = *model.normalization();
  batch::Batch normalized = batch.share();
  normalized.set_input(fields.normalized(input));
  batch::Outputs outputs = model.forward_batch(normalized);
  if (!outputs.is_empty()) {
    at::Tensor& output = outputs.entries().front().second;
    output = fields.in_units(output, input);
  }
  return outputs;
}

/// Forward passes that each begin where the one before has ended. The outputs are those of all passes, as channels, or
/// those of the last one.
batch::Outputs run_rollout(Model& model, const batch::Batch& batch, bool is_last_only) {
  const at::Tensor later = batch.tensor(is_last_only ? kSkippedInputs : kLaterInputs);
  const std::int64_t passes = later.size(1) + 1;
  std::vector<at::Tensor> outputs;
  at::Tensor input = batch.input();
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    if (pass > 0) input = model.normalization()->next_input(later.select(1, pass - 1), input, outputs);
    const bool has_gradients = at::GradMode::is_enabled() && (!is_last_only || pass + 1 == passes);
    const at::AutoGradMode mode(has_gradients);
    outputs.push_back(run_once(model, batch, input).main());
  }
  return is_last_only ? outputs.back() : at::cat(outputs, 1);
}

}  // namespace

batch::Outputs run(Model& model, const batch::Batch& batch) {
  const GrowthMeasurement measurement(at::GradMode::is_enabled());
  if (model.normalization() == nullptr) return named(model, [&] { return model.forward_batch(batch); });
  return named(model, [&] {
    const bool is_last_only = batch.has(kSkippedInputs);
    if (is_last_only || batch.has(kLaterInputs)) return run_rollout(model, batch, is_last_only);
    return run_once(model, batch, batch.input());
  });
}

namespace {

LossMap losses_of_scaled(const Model& model, const batch::Outputs& outputs, const batch::Batch& batch) {
  if (!model.loss()) return model.losses_of(outputs, batch);
  return {{"loss", model.loss().value(outputs, batch, model.is_training())}};
}

}  // namespace

LossMap losses_of(const Model& model, const batch::Outputs& outputs, const batch::Batch& batch) {
  const FieldNormalization* const fields = model.normalization();
  try {
    if (fields == nullptr || !fields->has_target_scale()) return losses_of_scaled(model, outputs, batch);
    batch::Outputs scaled = outputs;
    at::Tensor& output = scaled.entries().front().second;
    output = fields->scaled(output, batch.input());
    batch::Batch compared = batch.share();
    compared.set(batch.target_key(), fields->scaled(batch.target(), batch.input()));
    return losses_of_scaled(model, scaled, compared);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    throw DataError("the losses of the model for " + samples_text(batch) + ": " + message_of(error));
  }
}

std::vector<const Block*> matching_blocks(const Block& model, const std::vector<std::string>& patterns,
                                          const std::string& key) {
  std::vector<bool> has_match(patterns.size());
  std::vector<const Block*> chosen;
  for (const auto& child : model.named_modules({}, /*include_self=*/false)) {
    const auto* const block = dynamic_cast<const Block*>(child.value().get());
    if (block == nullptr) continue;
    bool is_chosen = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!matches(patterns[i], child.key())) continue;
      has_match[i] = is_chosen = true;
    }
    if (is_chosen) chosen.push_back(block);
  }
  const auto missed = std::find(has_match.begin(), has_match.end(), false);
  if (missed == has_match.end()) return chosen;
  throw ConfigError(key + ": the model does not have a block named '" +
                    patterns[static_cast<std::size_t>(missed - has_match.begin())] + "'");
}

bool is_tapped() { return innermost_tap != nullptr; }

ScopedTap::ScopedTap(Tap tap) : tap_(std::move(tap)), outer_(std::exchange(innermost_tap, this)) {}

ScopedTap::~ScopedTap() { innermost_tap = outer_; }

std::vector<Tap> active_taps() {
  std::vector<Tap> taps;
  for (const ScopedTap* tap = innermost_tap; tap != nullptr; tap = tap->outer()) taps.push_back(tap->tap());
  return taps;
}

ScopedTaps::ScopedTaps(const std::vector<Tap>& taps) : before_(std::exchange(innermost_tap, nullptr)) {
  for (auto tap = taps.rbegin(); tap != taps.rend(); ++tap) taps_.emplace_back(*tap);
}

ScopedTaps::~ScopedTaps() {
  taps_.clear();
  innermost_tap = before_;
}

}  // namespace lockstep::models
