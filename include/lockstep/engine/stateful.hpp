// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// The components of a checkpoint, and the differences between a checkpoint and a run that resumes from it.
// checkpoints/FORMAT.md lists every path.
namespace lockstep::engine {

/// Differences that are allowed between a checkpoint and the run that resumes from it. By default none.
struct RestoreOptions {
  bool is_partial = false;      ///< load arrays that match by name, type and shape; others keep their initial values
  bool resets_optim = false;    ///< moments and update counts start again
  bool resets_sched = false;    ///< the schedule starts again at this step
  bool resets_sampler = false;  ///< the samples start again, with epoch 0
  bool resets_rng = false;      ///< LibTorch's generators keep the state they have
  bool resets_average = false;  ///< the average of weights starts again
  Renames renames = {};         ///< renames of parameters and buffers
};

/// The part of a run that a mismatch concerns. Messages list mismatches in this order.
enum class MismatchKind { model, optimizer, data, generators, average, other };

/// A setting with which a run resumes despite a mismatch. Messages list remedies in this order.
enum class Remedy { partial_model, rename, reset_average, reset_optimizer, reset_generators, reset_sampler };

/// The setting as a user writes it, such as "resume.reset=optim".
const std::string& setting_of(Remedy remedy);

struct Mismatch {
  MismatchKind kind;
  std::string text;                   ///< the difference: value of the checkpoint, and value of the run
  std::vector<Remedy> remedies = {};  ///< settings that allow the difference; empty = the run cannot resume
};

/// Whether a stored array has the shape and type of a tensor of the run.
bool fits(const checkpoints::Array& saved, const Tensor& live);

/// All differences between a checkpoint and a run, for one error message.
class CompatibilityReport {
 public:
  /// @param archive  outlives the report
  explicit CompatibilityReport(const checkpoints::Archive& archive) : archive_(&archive) {}

  void add(Mismatch mismatch);
  /// Adds a mismatch unless the archive has an array that fits a tensor of the run.
  /// @param unused  names of stored arrays that the run does not have: one of them may be a renamed `path`
  void expect_array(MismatchKind kind, const std::string& path, const Tensor& live,
                    const std::vector<Remedy>& remedies = {}, const std::vector<std::string>& unused = {});

  /// All mismatches, in the order of their kinds, and of one kind in the order in which they were added.
  const std::vector<Mismatch>& mismatches() const noexcept { return mismatches_; }
  /// Removes the mismatches of one kind: the run resumes despite them.
  /// @return  their texts, for the log
  std::vector<std::string> accept(MismatchKind kind);

  /// @throws CheckpointError  there are mismatches of that kind; lists these only
  void throw_if_any(MismatchKind kind) const;
  /// @throws CheckpointError  there are mismatches
  void throw_if_any() const;

 private:
  [[noreturn]] void refuse(const std::vector<Mismatch>& mismatches) const;

  const checkpoints::Archive* archive_;
  std::vector<Mismatch> mismatches_;
};

/// How exactly a resumed run reproduces the results of the uninterrupted run.
struct Reproducibility {
  enum class Degree {
    bitwise,      ///< every bit
    order,        ///< the same samples in the same order; sums are rounded differently
    statistical,  ///< results of the same kind
  };
  Degree level = Degree::bitwise;
  std::string reason = {};  ///< reason why it is not bitwise

  /// "bitwise", or "order, because <reason>": for the log.
  std::string text() const;
};

/// The lowest level among them; of equal levels, the first.
Reproducibility worst_of(const std::vector<Reproducibility>& all);

/// The values of a tensor in row-major order. Borrows the memory of a row-major tensor on the CPU.
/// @param what  name of the tensor for messages
checkpoints::Array array_of(const at::Tensor& tensor, const std::string& what);

/// A tensor that borrows the array's bytes. Do not write to it.
at::Tensor tensor_over(const checkpoints::Array& array);

class DeviceCopies;

/// Receives the values that a component puts into a checkpoint. Every rank makes the same calls, because capturing can
/// be collective; on ranks that do not write checkpoints they have no effect.
class StateWriter {
 public:
  /// @param archive  outlives the writer; stays empty on a rank that does not write
  /// @param copies   outlives the writer; queues the copies of tensors of a device, so that the host does not wait for
  ///                 them. null = the host waits for each
  StateWriter(checkpoints::Archive& archive, bool is_writer, DeviceCopies* copies = nullptr)
      : archive_(&archive), is_writer_(is_writer), copies_(copies) {}

  bool is_writer() const noexcept { return is_writer_; }
  checkpoints::Archive& archive() const noexcept { return *archive_; }

  void set(const std::string& path, const std::string& name, checkpoints::Attribute value) const {
    if (is_writer_) archive_->set(path, name, std::move(value));
  }
  void put(const std::string& path, checkpoints::Array array) const {
    if (is_writer_) archive_->put(path, std::move(array));
  }
  /// The archive borrows the tensor where array_of does.
  void put(const std::string& path, const at::Tensor& tensor) const;
  void link(const std::string& path, const std::string& target) const {
    if (is_writer_) archive_->link(path, target);
  }

 private:
  checkpoints::Archive* archive_;
  bool is_writer_;
  DeviceCopies* copies_;
};

/// The part of one array of a checkpoint that is on this rank: all of it, or a part if the array is divided among
/// ranks.
struct LocalState {
  std::string path;              ///< path of the array
  at::Tensor tensor;             ///< the live values; of a part, a meta tensor with the shape of the whole array
  std::int64_t begin = 0;        ///< first element of a part, in the order of the strides
  std::span<std::byte> bytes{};  ///< values of a part
  at::Device device = at::kCPU;  ///< device of a part's values
  bool is_own = false;           ///< no other rank of this node uses the same memory

  bool is_whole() const { return !tensor.is_meta(); }
};

/// One component of a checkpoint. The engine saves and restores a list of them: first every component is compared, then
/// every component is restored, in the order of the list. On every rank the list is the same.
///
/// A hook adds components of its own with Hook::states. They put what they have below the group "/hooks/<name>".
class Stateful {
 public:
  virtual ~Stateful() = default;

  /// Unique among the components of a run.
  virtual std::string name() const = 0;

  /// Puts the state of the component into a checkpoint. Arrays can borrow live memory until the next step. Collective.
  virtual void capture(const StateWriter& writer) = 0;

  /// Adds the differences to the run. Changes nothing. Not collective.
  /// @throws CheckpointError  something is missing or has another type
  virtual void compare(const checkpoints::Archive&, const RestoreOptions&, CompatibilityReport&) {}

  /// Restores the values from a compatible checkpoint. The checkpoint can be older than the component and contain no
  /// values for it. Collective; an error of one rank ends the restoration on every rank.
  virtual void restore(const checkpoints::Archive&, const RestoreOptions&) = 0;

  /// False = with these options the component is neither compared nor restored.
  virtual bool is_restored(const RestoreOptions&) const { return true; }

  /// How exactly this component reproduces the run of the checkpoint.
  virtual Reproducibility reproducibility(const checkpoints::Archive&, const RestoreOptions&) { return {}; }

  /// Visits the arrays that exist in memory as they are stored. A checkpoint can be read straight into them, and after
  /// restoring they are compared with it.
  virtual void visit_arrays(const std::function<void(const LocalState&)>&) {}
};

/// A component of values that are equal on every rank, in the group "/hooks/<name>".
/// @param save  writes the values below a group. Called on ranks that write checkpoints; not collective
/// @param load  restores what `save` wrote, if the checkpoint has the group, except with resume.partial. Called on
/// every
///              rank; not collective; throws CheckpointError if `save` did not write it
std::shared_ptr<Stateful> hook_state(
    const std::string& name, std::function<void(checkpoints::Archive& archive, const std::string& group)> save,
    std::function<void(const checkpoints::Archive& archive, const std::string& group)> load);

}  // namespace lockstep::engine
