// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::metrics {

/// Several meters and what they have counted so far. Independent of ranks: the caller takes the maxima, sums sums()
/// over ranks in one all_reduce, puts the largest of the maxima of all ranks, and gives all_gather_any's parts of
/// packed() to take_gathered. All once, before read. Meters that need all samples take (1 + K + L) 8 bytes of each on
/// every rank.
class Meters {
 public:
  Meters() = default;
  /// @throws ConfigError  two results of one name
  explicit Meters(std::vector<Meter> meters);

  bool is_empty() const noexcept { return meters_.empty(); }
  bool needs_all_samples() const noexcept { return !gathered_.empty(); }
  /// Name and direction of every number of read(), in order.
  std::vector<Result> results() const;

  /// Gives what a meter reads of the batch at hand. Called once for each pair of names.
  using SamplesOf = std::function<Samples(const Reads& reads)>;
  /// Counts a batch. @throws DataError  it is not what a meter needs; then nothing is to be read any more
  void add(const SamplesOf& samples_of);
  /// The same for meters that all read the same.
  void add(const Samples& samples);
  /// Adds the counts of `other`, which must have the same meters.
  void merge(const Meters& other);

  /// The counts, which add up: of the whole they are the sums of those of its parts.
  std::span<std::int64_t> sums() noexcept { return sums_; }
  /// Moves the words that are maxima out of sums(), which then has zeros in their places.
  std::vector<std::int64_t> take_maxima();
  /// Puts maxima into sums() in the order of take_maxima.
  void put_maxima(std::span<const std::int64_t> maxima);
  /// Own samples for those meters that need all of them; nothing where none does.
  std::vector<std::byte> packed() const;
  /// Puts the samples of all parts instead of the own ones, each once.
  void take_gathered(std::span<const std::vector<std::byte>> parts);

  /// Numbers by name, and tables.
  struct Readings {
    std::vector<std::pair<std::string, double>> numbers;
    std::vector<Table> tables;
  };
  /// @throws DataError  as the meters that need all samples do
  Readings read() const;

 private:
  std::vector<Meter> meters_;
  /// The samples gathered for meters with equal Reads.
  struct Gathered {
    Reads reads;
    Samples samples = {};
  };
  std::vector<Gathered>::const_iterator gathered_for(const Meter& meter) const;
  /// The places of maxima among sums_.
  std::vector<std::size_t> places_of_maxima() const;

  std::vector<std::int64_t> sums_;
  std::vector<Gathered> gathered_;  // samples for the meters that need all of them
};

/// The number of targets of a batch, and of correct ones (the highest score is that of the target).
struct Answers {
  std::int64_t correct = 0;
  std::int64_t count = 0;  ///< targets that are not ignored (-100)

  bool operator==(const Answers&) const = default;
};

/// Counts one batch. Not collective.
/// @param scores  [..., C]
/// @param target  [...] int64 in [0, C), or -100: not counted
/// @return        nothing where the target has another shape, such as a number for each output
std::optional<Answers> count_answers(const Tensor& scores, const Tensor& target);

/// The numbers of a value as Samples::fields has them.
/// @param name    of the value, for messages
/// @param value   sizes of the target, of which those after N can be 1
/// @param target  [N, ...]
/// @throws DataError  other sizes
std::vector<double> field_of(const std::string& name, const Tensor& value, const Tensor& target);

}  // namespace lockstep::metrics
