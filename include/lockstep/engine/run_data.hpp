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

namespace lockstep::data {
class Mixing;
}

namespace lockstep::engine {

/// The division of a global batch among ranks, and on each rank among forward passes (micro-batches or lanes).
struct BatchLayout {
  std::int64_t global_batch_size = 0;  ///< samples per step over all ranks
  std::int64_t micro_batches = 1;      ///< forward passes of this rank per step; with lanes, the lanes of this rank
  std::int64_t micro_batch_size = 0;   ///< maximum number of samples per forward pass
  std::int64_t lanes = 0;              ///< lanes per step over all ranks; 0 = off
  std::int64_t first_lane = 0;         ///< first lane of this rank
  data::Share share = {};              ///< positions of this rank in a global batch

  /// The positions in a global batch of one forward pass of this rank.
  /// @param part  in [0, micro_batches)
  data::Share positions_of(std::int64_t part) const;
};

/// The data of a run: its splits, and the samples of each step.
class RunData {
 public:
  /// @param mixing      mixes the samples of training batches; null = they are not mixed
  /// @param processors  that this rank can use
  RunData(data::Splits splits, data::Sampler sampler, const BatchLayout& layout, data::LoaderOptions loader,
          std::shared_ptr<const data::Mixing> mixing = nullptr, int processors = 1)
      : splits_(std::move(splits)),
        sampler_(std::move(sampler)),
        layout_(layout),
        loader_(std::move(loader)),
        mixing_(std::move(mixing)),
        processors_(processors) {}

  const data::Splits& splits() const noexcept { return splits_; }
  const data::Sampler& sampler() const noexcept { return sampler_; }
  const BatchLayout& layout() const noexcept { return layout_; }
  int loader_threads() const noexcept { return loader_.workers; }  ///< loader threads on this rank
  int processors() const noexcept { return processors_; }          ///< that this rank can use

  /// The training samples of one micro-batch of this rank.
  /// @param position  number of steps since the start of the first epoch
  /// @param part      number of the micro-batch in the step, in [0, layout().micro_batches)
  std::vector<batch::Draw> draws_of(std::int64_t position, std::int64_t part) const;
  /// The samples that a loader reads for a mixed batch: the sample before the first one in the global batch, where the
  /// last one precedes the first, and then those of draws_of.
  std::vector<batch::Draw> draws_to_mix(std::int64_t position, std::int64_t part) const;
  /// Opens a loader of the remaining micro-batches of this rank.
  std::unique_ptr<data::Loader> open_loader(const Progress& progress) const;

 private:
  data::Splits splits_;
  data::Sampler sampler_;
  BatchLayout layout_;
  data::LoaderOptions loader_;
  std::shared_ptr<const data::Mixing> mixing_;
  int processors_;
};

}  // namespace lockstep::engine
