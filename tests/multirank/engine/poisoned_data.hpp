// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/registry.hpp>

#include <ATen/core/Tensor.h>

#include <atomic>
#include <limits>
#include <memory>
#include <span>
#include <utility>

namespace lockstep::engine {

inline constexpr std::int64_t kBadSample = 20;

/// Generated digits, of which one is NaN as often as `times` on this rank.
class Poisoned : public data::Dataset {
 public:
  Poisoned(std::shared_ptr<const data::Dataset> inner, int times) : inner_(std::move(inner)), times_(times) {}
  std::int64_t size() const override { return inner_->size(); }
  Task task() const override { return inner_->task(); }
  std::uint64_t digest() const override { return inner_->digest(); }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    batch::Batch batch = inner_->get(draws);
    for (std::size_t i = 0; i < draws.size(); ++i) {
      if (draws[i].index != kBadSample || times_.fetch_sub(1) <= 0) continue;
      batch.set_input(batch.input().clone());
      batch.input()[static_cast<std::int64_t>(i)].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    return batch;
  }

 private:
  std::shared_ptr<const data::Dataset> inner_;
  mutable std::atomic<int> times_;
};

/// The source "poisoned": generated digits, with a sample that is bad as often as that on this rank.
inline Registry poisoned_registry(int times) {
  Registry registry;
  registry.sources.push_back({.name = "poisoned", .help = "", .keys = {}, .open = [times](const Section& section) {
                                data::Splits splits = data::builtin_sources().front().open(section);
                                splits.train = std::make_shared<Poisoned>(splits.train, times);
                                return splits;
                              }});
  return registry;
}

}  // namespace lockstep::engine
