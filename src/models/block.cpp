// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/block.hpp>

#include <c10/util/Exception.h>

#include <string_view>
#include <utility>

namespace lockstep::models {

namespace {

thread_local const ScopedTap* innermost_tap = nullptr;

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

at::Tensor forward_named(Block& block, const at::Tensor& input) {
  try {
    return block.forward(input);
  } catch (const c10::Error& error) {
    throw ConfigError("model" + (block.path().empty() ? "" : "." + block.path()) + ": " +
                      first_line(error.what_without_backtrace()));
  }
}

at::Tensor run_through(const ScopedTap* tap, Block& block, const at::Tensor& input) {
  if (tap == nullptr) return forward_named(block, input);
  return tap->tap()(block, input,
                    [tap, &block](const at::Tensor& inner) { return run_through(tap->outer(), block, inner); });
}

}  // namespace

void Block::name_blocks() {
  for (const auto& child : named_modules({}, /*include_self=*/false)) {
    if (auto* block = dynamic_cast<Block*>(child.value().get())) block->path_ = child.key();
  }
}

at::Tensor run(Block& block, const at::Tensor& input) { return run_through(innermost_tap, block, input); }

bool is_tapped() { return innermost_tap != nullptr; }

ScopedTap::ScopedTap(Tap tap) : tap_(std::move(tap)), outer_(std::exchange(innermost_tap, this)) {}

ScopedTap::~ScopedTap() { innermost_tap = outer_; }

}  // namespace lockstep::models
