// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Context.h>
#include <torch/types.h>
#include <torch/version.h>

#include "engine/resume/components.hpp"
#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

class RandomState : public Stateful {
 public:
  explicit RandomState(const mpi::Communicator& world) : world_(&world) {}

  std::string name() const override { return "generators"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_rng; }

  void capture(const StateWriter& writer) override {
    const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
    const auto bytes = static_cast<std::size_t>(state.numel());
    const auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<std::size_t>(world_->size()));
    world_->all_gather(std::span<const std::byte>(parallel::bytes_of(state)), std::span<std::byte>(*all));
    writer.put(kGenerators, Array{.dtype = DType::uint8,
                                  .shape = {world_->size(), state.numel()},
                                  .bytes = std::as_bytes(std::span(*all)),
                                  .owner = all});
  }

  /// Another number of ranks is no mismatch: no state of Lockstep depends on these generators.
  void compare(const Archive& archive, const RestoreOptions&, CompatibilityReport& report) override {
    const Array& saved = archive.array(kGenerators);
    const std::int64_t live = at::globalContext().defaultGenerator(at::kCPU).get_state().numel();
    if (saved.shape.size() == 2 && saved.shape[1] == live) return;
    report.add({.kind = MismatchKind::generators,
                .text = "its generators have a state of " +
                        (saved.shape.size() == 2 ? std::to_string(saved.shape[1]) : std::string("unknown")) +
                        " bytes, but those of this LibTorch (" TORCH_VERSION ") " + std::to_string(live),
                .remedies = {Remedy::reset_generators}});
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    const at::Tensor states = tensor_over(archive.array(kGenerators));
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const bool fits = states.size(0) == world_->size() && states.size(1) == generator.get_state().numel();
    if (fits) generator.set_state(states[world_->rank()].clone());
  }

 private:
  const mpi::Communicator* world_;
};

}  // namespace

std::shared_ptr<Stateful> random_state(const mpi::Communicator& world) { return std::make_shared<RandomState>(world); }

}  // namespace lockstep::engine
