// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/tensor_fwd.hpp>

#include <string>
#include <vector>

// How a checkpoint and a run that resumes from it differ.
namespace lockstep::engine {

/// The part of a run that a mismatch concerns. Messages list mismatches in this order.
enum class MismatchKind { model, optimizer, data, generators, average, arithmetic, other };

/// A setting with which a run resumes in spite of a mismatch. Messages list remedies in this order.
enum class Remedy { partial_model, rename, reset_average, reset_optimizer, reset_generators, reset_sampler };

/// The setting as a user writes it, such as "resume.reset=optim".
const std::string& setting_of(Remedy remedy);

struct Mismatch {
  MismatchKind kind;
  std::string text;                   ///< what the checkpoint has, and what the run has
  std::vector<Remedy> remedies = {};  ///< none: the run cannot resume from this checkpoint
};

/// Whether a stored array has the shape and type of a tensor of the run.
bool fits(const checkpoints::Array& saved, const Tensor& live);

/// Everything in a checkpoint that does not fit the run, for one error message.
class CompatibilityReport {
 public:
  /// @param archive          outlives the report
  /// @param offers_remedies  false: the message names no settings, because what resumes has none
  explicit CompatibilityReport(const checkpoints::Archive& archive, bool offers_remedies = true)
      : archive_(&archive), offers_remedies_(offers_remedies) {}

  void add(Mismatch mismatch);
  /// Adds a mismatch unless the archive has an array that fits a tensor of the run.
  /// @param unused  names of stored arrays that the run does not have: one of them may be a renamed `path`
  void expect_array(MismatchKind kind, const std::string& path, const Tensor& live,
                    const std::vector<Remedy>& remedies = {}, const std::vector<std::string>& unused = {});

  /// In the order of their kinds, and of one kind in the order in which they were added.
  const std::vector<Mismatch>& mismatches() const noexcept { return mismatches_; }
  /// Removes the mismatches of one kind: the run resumes in spite of them.
  /// @return  their texts, for the log
  std::vector<std::string> accept(MismatchKind kind);

  /// @throws CheckpointError  there are mismatches of that kind; lists these only
  void throw_if_any(MismatchKind kind) const;
  /// @throws CheckpointError  there are mismatches
  void throw_if_any() const;

 private:
  [[noreturn]] void refuse(const std::vector<Mismatch>& mismatches) const;

  const checkpoints::Archive* archive_;
  bool offers_remedies_;
  std::vector<Mismatch> mismatches_;
};

/// How much of the uninterrupted run's results a resumed run repeats.
struct Reproducibility {
  enum class Level {
    bitwise,      ///< every bit
    order,        ///< the same samples in the same order; sums are rounded differently
    statistical,  ///< results of the same kind
  };
  Level level = Level::bitwise;
  std::string reason = {};  ///< why it is not bitwise

  /// "bitwise", or "order, because <reason>": for the log.
  std::string text() const;
};

/// The lowest level among them; of equal levels, the first.
Reproducibility worst_of(const std::vector<Reproducibility>& all);

}  // namespace lockstep::engine
