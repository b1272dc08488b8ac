// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// A bucket of this rank's own gradients, not divided by anything, as a communication hook sees it. Hooks see dense
/// gradients only: sparse ones are averaged without them.
struct GradBucket {
  std::size_t index = 0;               ///< among those that hooks see
  std::size_t count = 0;               ///< how many these are in a step
  at::Tensor buffer;                   ///< [n] flat; what lies between two gradients is zero and should stay so
  std::vector<at::Tensor> gradients;   ///< views of the buffer with their parameters' shapes and strides
  std::vector<at::Tensor> parameters;  ///< of the same gradients, in the same order
  std::vector<std::size_t> places;     ///< of these parameters in registration order, which stays when buckets change

  bool is_last() const { return index + 1 == count; }
};

/// Waits for a bucket's reduction and gives the result: the buffer itself, or a tensor of its size and type.
using Completion = std::function<at::Tensor()>;

/// Replaces the average of a bucket. Called on every rank in bucket order, from within backward, when the bucket is
/// ready; it starts what it needs and returns at once. The completions are then called in bucket order, too, so a hook
/// may use further collectives there. Averaging is the hook's own matter.
///
/// An update that overlaps with the reduction needs no hook: without one, gradients are averaged slice by slice while
/// the optimizer visits them (Synchronization::sliced), which is that overlap. With a hook, updates follow it.
using CommHook = std::function<Completion(const GradBucket&)>;

/// The sum over ranks divided by their number: what happens without a hook, bit by bit.
CommHook all_reduce_hook(mpi::Collectives& collectives);
/// Averages as float16 or bfloat16: divided by the number of ranks as it is, so that no average within the range of the
/// type overflows; then rounded, summed in float32, rounded once more, and widened into the bucket.
CommHook fp16_hook(mpi::Collectives& collectives);
CommHook bf16_hook(mpi::Collectives& collectives);  ///< see fp16_hook
/// Puts `inner` to work on a copy of each bucket that is rounded to `type`, and widens what it gives.
/// @param type  at::kHalf or at::kBFloat16. Gradients beyond its range become infinite
CommHook compressed_hook(at::ScalarType type, CommHook inner, mpi::Collectives& collectives);
/// Leaves every rank its own gradients: the step without its communication, for measuring. See ChosenHook::is_silent.
CommHook noop_hook();

/// What a hook has learned, by name, for checkpoints. Names, types and shapes are the same on every rank.
struct HookState {
  std::map<std::string, at::Tensor> tensors = {};     ///< of this rank alone; lost when the number of ranks changes
  std::map<std::string, at::Tensor> common = {};      ///< the same on every rank
  std::map<std::string, std::int64_t> integers = {};  ///< likewise
};

/// A hook whose results depend on the steps before.
class HookMemory {
 public:
  virtual ~HookMemory() = default;
  /// Copies. Not collective.
  virtual HookState state() const = 0;
  /// Goes on where `state` was taken, on the same rank of as many; without `tensors`, on any. Not collective.
  /// @throws CheckpointError  not a state of this kind of hook
  virtual void load_state(const HookState& state) = 0;
};

/// What a row of the table makes.
struct ChosenHook {
  CommHook hook;
  std::shared_ptr<HookMemory> memory = nullptr;  ///< null = it learns nothing
  /// The hook sends nothing, and the reducer does not either: sparse gradients, use counts and errors about missing
  /// gradients then concern each rank alone.
  bool is_silent = false;
};

/// A row of the table of communication hooks.
struct CommHookRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< its own keys of section `ddp`
  /// @throws ConfigError  options that do not fit each other
  ChosenHook (*make)(const Section& ddp, mpi::Collectives& collectives);
};

/// all_reduce, fp16, bf16, powersgd, noop.
const std::vector<CommHookRow>& builtin_comm_hooks();

}  // namespace lockstep::parallel
