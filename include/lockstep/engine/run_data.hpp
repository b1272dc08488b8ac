// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/loader.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// How a global batch is divided: among ranks, and on each rank among forwards (micro-batches, or lanes).
struct BatchLayout {
  std::int64_t global_batch_size = 0;  ///< samples of a step, over all ranks
  std::int64_t micro_batches = 1;      ///< forwards of this rank in a step; with lanes, its lanes
  std::int64_t micro_batch_size = 0;   ///< maximum number of samples of one forward
  std::int64_t lanes = 0;              ///< of a step, on all ranks; 0 = off
  std::int64_t first_lane = 0;         ///< of this rank
  data::Share share = {};              ///< positions of this rank in a global batch

  /// The positions of one of this rank's forwards in a global batch.
  /// @param part  in [0, micro_batches)
  data::Share positions_of(std::int64_t part) const;
};

/// The data of a run: its splits, and which samples come in which step.
class RunData {
 public:
  RunData(data::Splits splits, data::Sampler sampler, const BatchLayout& layout, data::LoaderOptions loader)
      : splits_(std::move(splits)), sampler_(std::move(sampler)), layout_(layout), loader_(std::move(loader)) {}

  const data::Splits& splits() const noexcept { return splits_; }
  const data::Sampler& sampler() const noexcept { return sampler_; }
  const BatchLayout& layout() const noexcept { return layout_; }

  /// The training samples of one of this rank's micro_batches.
  /// @param position  steps since the first epoch began
  /// @param part      number of the micro_batch in its step, in [0, layout().micro_batches)
  std::vector<batch::Draw> draws_of(std::int64_t position, std::int64_t part) const;
  /// This rank's micro_batches from where the run is to its end.
  std::unique_ptr<data::Loader> open_loader(const Progress& progress) const;

 private:
  data::Splits splits_;
  data::Sampler sampler_;
  BatchLayout layout_;
  data::LoaderOptions loader_;
};

}  // namespace lockstep::engine
