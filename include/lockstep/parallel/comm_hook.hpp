// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// A bucket of gradients of this rank, not divided by the number of ranks, for a communication hook. Hooks receive
/// dense gradients only; sparse gradients are averaged without them.
struct GradBucket {
  std::size_t index = 0;                    ///< index among the buckets of hooks
  std::size_t count = 0;                    ///< number of such buckets per step
  at::Tensor buffer = {};                   ///< [n] flat; the padding between gradients is zero and must stay zero
  std::vector<at::Tensor> gradients = {};   ///< views of the buffer with the shapes and strides of the parameters
  std::vector<at::Tensor> parameters = {};  ///< parameters of these gradients, in the same order
  /// Positions of these parameters in registration order, independent of the buckets.
  std::vector<std::size_t> places = {};

  bool is_last() const { return index + 1 == count; }
};

/// Waits for the reduction of a bucket and returns the result: the buffer, or a tensor with its size and type.
using Completion = std::function<at::Tensor()>;

/// Replaces the averaging of a bucket. Called on every rank in the order of buckets, during backward, when the bucket
/// is ready. It starts its communication and returns at once. The completions are called in the order of buckets, too,
/// so that a hook can use further collectives there. The hook is responsible for averaging.
///
/// An update that overlaps with the reduction does not need a hook: without a hook, gradients are averaged slice by
/// slice while the optimizer visits them (Synchronization::sliced). With a hook, the update starts after the reduction.
using CommHook = std::function<Completion(const GradBucket&)>;

/// The sum over ranks divided by their number: bitwise equal to the average without a hook.
CommHook all_reduce_hook(mpi::Collectives& collectives);
/// Averages in float16 or bfloat16: divides by the number of ranks first, so that no average within the range of the
/// type overflows; then rounds, sums in float32, rounds again, and converts the result to the type of the bucket.
CommHook fp16_hook(mpi::Collectives& collectives);
CommHook bf16_hook(mpi::Collectives& collectives);  ///< see fp16_hook
/// Applies `inner` to a copy of each bucket that is rounded to `type`, and converts its result back.
/// @param type  at::kHalf or at::kBFloat16; gradients beyond its range become infinite
CommHook compressed_hook(at::ScalarType type, CommHook inner, mpi::Collectives& collectives);
/// Keeps the gradients of every rank: a step without communication, for measurements. See ChosenHook::is_silent.
CommHook noop_hook();

/// The state of a communication hook, by name, for checkpoints. Names, types and shapes are equal on every rank.
struct HookState {
  /// Different on each rank; lost if the number of ranks changes.
  std::map<std::string, at::Tensor> tensors = {};
  std::map<std::string, at::Tensor> common = {};      ///< equal on every rank
  std::map<std::string, std::int64_t> integers = {};  ///< likewise
};

/// The state of a hook with results that depend on previous steps.
class HookMemory {
 public:
  virtual ~HookMemory() = default;
  /// Copies. Not collective.
  virtual HookState state() const = 0;
  /// Restores a state of the same rank and number of ranks; without `tensors`, of any rank. Not collective.
  /// @throws CheckpointError  the state is from another kind of hook
  virtual void load_state(const HookState& state) = 0;

  // Captured steps (run.cuda_graphs) record the work of the hook and do not call it. They need this:

  /// A number for what the hook does in the next step. While the number is the same, so is the work that it queues, in
  /// the same memory. A step with another number than the step before is run without a recording.
  virtual std::int64_t work() const { return 0; }
  /// The number of steps that have begun, which a captured step increases; null = the hook does not count.
  virtual std::int64_t* step_count() { return nullptr; }
};

/// The hook that a row of the table creates.
struct ChosenHook {
  CommHook hook;
  std::shared_ptr<HookMemory> memory = nullptr;  ///< null = the hook has no state
  /// The hook does not communicate, and neither does the reducer: sparse gradients, use counts and errors about missing
  /// gradients are then local to each rank.
  bool is_silent = false;
  /// The type of fp16_hook or bf16_hook, if the hook is one of them: a reducer of slices then rounds to this type
  /// itself instead of calling the hook. Stages 2 and 3 of Sharding require it.
  std::optional<at::ScalarType> rounding = {};
  /// The hook and its completions only queue work on the device, which depends on nothing but HookMemory::work: steps
  /// can be captured (run.cuda_graphs).
  bool is_recordable = false;
};

/// A row of the table of communication hooks. A program can append rows to engine::Registry::comm_hooks.
struct CommHookRow {
  std::string name;
  std::string help;
  KeySpecs keys = {};  ///< its own keys of section `ddp`
  /// Creates the hook. Called on every rank when the model is wrapped. Throws ConfigError if options contradict each
  /// other.
  std::function<ChosenHook(const Section& ddp, mpi::Collectives& collectives)> make;
};

/// The built-in hooks: fp16, bf16, powersgd, noop.
const std::vector<CommHookRow>& builtin_comm_hooks();

}  // namespace lockstep::parallel
