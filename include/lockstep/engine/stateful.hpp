// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/compatibility.hpp>
#include <lockstep/engine/resume_settings.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

// What a checkpoint consists of. checkpoints/FORMAT.md names every path.
namespace lockstep::engine {

/// The tensor's values in row-major order. Borrows the memory of a row-major tensor on the CPU.
/// @param what  names the tensor in messages
checkpoints::Array array_of(const at::Tensor& tensor, const std::string& what);

/// A tensor that borrows the array's bytes. Do not write to it.
at::Tensor tensor_over(const checkpoints::Array& array);

/// Takes what a component puts into a checkpoint. Every rank makes the same calls, because capturing can be collective;
/// on a rank that does not write checkpoints they do nothing.
class StateWriter {
 public:
  /// @param archive  outlives the writer; stays empty on a rank that does not write
  StateWriter(checkpoints::Archive& archive, bool is_writer) : archive_(&archive), is_writer_(is_writer) {}

  bool is_writer() const noexcept { return is_writer_; }
  checkpoints::Archive& archive() const noexcept { return *archive_; }

  void set(const std::string& path, const std::string& name, checkpoints::Attribute value) const {
    if (is_writer_) archive_->set(path, name, std::move(value));
  }
  void put(const std::string& path, checkpoints::Array array) const {
    if (is_writer_) archive_->put(path, std::move(array));
  }
  /// The archive borrows the tensor where array_of does.
  void put(const std::string& path, const at::Tensor& tensor) const {
    if (is_writer_) archive_->put(path, array_of(tensor, path));
  }
  void link(const std::string& path, const std::string& target) const {
    if (is_writer_) archive_->link(path, target);
  }

 private:
  checkpoints::Archive* archive_;
  bool is_writer_;
};

/// What this rank holds of one array of a checkpoint: all of it, or a part where ranks divide it.
struct LocalState {
  std::string path;              ///< of the array
  at::Tensor tensor;             ///< the live values; of a part, a meta tensor with the shape of the whole array
  std::int64_t begin = 0;        ///< of a part: its first element, in the order of the strides
  std::span<std::byte> bytes{};  ///< of a part: its values
  at::Device device = at::kCPU;  ///< of a part: where these are
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

  /// Puts what the component has into a checkpoint. Arrays may borrow live memory until the next step. Collective.
  virtual void capture(const StateWriter& writer) = 0;

  /// Adds what does not fit the run. Changes nothing. Not collective.
  /// @throws CheckpointError  something is missing or has another type
  virtual void compare(const checkpoints::Archive&, const RestoreOptions&, CompatibilityReport&) {}

  /// Takes the values from a checkpoint, which fits. It can be older than the component and have nothing for it.
  /// Collective: what can fail on one rank is agreed on.
  virtual void restore(const checkpoints::Archive&, const RestoreOptions&) = 0;

  /// False: with these options the component is neither compared nor restored.
  virtual bool is_restored(const RestoreOptions&) const { return true; }

  /// How well the run reproduces the run of the checkpoint, as far as this component decides it.
  virtual Reproducibility reproducibility(const checkpoints::Archive&, const RestoreOptions&) { return {}; }

  /// Visits the arrays that exist in memory as they are stored. A checkpoint can be read straight into them, and after
  /// restoring they are compared with it.
  virtual void visit_arrays(const std::function<void(const LocalState&)>&) {}
};

}  // namespace lockstep::engine
