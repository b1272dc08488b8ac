// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::data {

struct LoaderOptions {
  int workers = 1;                    ///< threads that fetch ahead; 0 = fetch when asked, on the calling thread
  int prefetch = 4;                   ///< batches that may be ready or under way before they are asked for; >= 1
  std::string name = "the data set";  ///< how errors call it
  bool pins_memory = false;           ///< batches lie in page-locked memory, from where copies to a GPU need not wait
};

/// Fetches a sequence of batches ahead of their use. Which samples batch k holds comes from `plan` alone, so the
/// number of workers changes nothing but speed.
class Loader {
 public:
  /// What batch k holds.
  using Plan = std::function<std::vector<batch::Draw>(std::int64_t k)>;

  /// @param plan   of k = first, first + 1, ...; called from the workers
  /// @param end    batches to give: k in [first, end)
  Loader(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end,
         LoaderOptions options);
  ~Loader();  ///< stops and joins the workers; batches not taken are dropped
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, in order, with its draws. What a worker threw for it is rethrown here: mistakes of the program and
  /// errors of Lockstep as they are, but those about data, and of other libraries, as a DataError that names the
  /// sample.
  /// @throws std::logic_error  beyond `end`
  batch::Batch next();
  /// Seconds that `next` has waited in all.
  double wait_seconds() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
