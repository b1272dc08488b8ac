// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>
#include <lockstep/engine/registry.hpp>

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lockstep::engine {

/// Changes a batch of samples that were drawn. Threads of a loader may call it at the same time.
using ChangeBatch = std::function<void(batch::Batch& batch, std::span<const batch::Draw> draws)>;

class ChangedData : public data::Dataset {
 public:
  ChangedData(std::shared_ptr<const data::Dataset> inner, ChangeBatch change)
      : inner_(std::move(inner)), change_(std::move(change)) {}
  std::int64_t size() const override { return inner_->size(); }
  Task task() const override { return inner_->task(); }
  std::uint64_t digest() const override { return inner_->digest(); }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    batch::Batch batch = inner_->get(draws);
    change_(batch, draws);
    return batch;
  }

 private:
  std::shared_ptr<const data::Dataset> inner_;
  ChangeBatch change_;
};

enum class ChangedSplits { train, train_and_val };

/// A registry with a source of generated digits, in splits of which batches are changed.
/// @param make_change  called whenever the source is opened
inline Registry registry_with_changed_digits(const std::string& source, const std::function<ChangeBatch()>& make_change,
                                             ChangedSplits changed = ChangedSplits::train) {
  Registry registry;
  registry.sources.push_back(
      {.name = source, .help = "", .keys = {}, .open = [make_change, changed](const Section& section) {
         data::Splits splits = data::builtin_sources().front().open(section);
         const ChangeBatch change = make_change();
         splits.train = std::make_shared<ChangedData>(splits.train, change);
         if (changed == ChangedSplits::train_and_val) splits.val = std::make_shared<ChangedData>(splits.val, change);
         return splits;
       }});
  return registry;
}

inline constexpr std::int64_t kBadSample = 20;

/// The source "poisoned": generated digits, of which a sample of the training data is NaN as often as `times` on this
/// rank.
inline Registry poisoned_registry(int times) {
  return registry_with_changed_digits("poisoned", [times]() -> ChangeBatch {
    return [left = std::make_shared<std::atomic<int>>(times)](batch::Batch& batch, std::span<const batch::Draw> draws) {
      for (std::size_t i = 0; i < draws.size(); ++i) {
        if (draws[i].index != kBadSample || left->fetch_sub(1) <= 0) continue;
        batch.set_input(batch.input().clone());
        batch.input()[static_cast<std::int64_t>(i)].fill_(std::numeric_limits<float>::quiet_NaN());
      }
    };
  });
}

}  // namespace lockstep::engine
