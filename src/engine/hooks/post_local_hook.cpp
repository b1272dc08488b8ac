// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "engine/hooks/hooks.hpp"
#include "parallel/comm_hooks/post_local_sgd.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

class PostLocalHook : public Hook {
 public:
  explicit PostLocalHook(parallel::PostLocalSgd& averages) : Hook(HookReads::nothing()), averages_(&averages) {}

  void after_step(RunView& run, const StepReport&) override { averages_->after_update(run.wrapper); }
  void before_evaluation(RunView& run) override { averages_->average_all(run.wrapper); }

  /// All ranks have the same weights and moments, as after resuming from the checkpoint, after it.
  void before_save(RunView& run) override {
    averages_->average_all(run.wrapper);
    for (auto& [part, wrapper] : run.parts) {
      optim::Optimizer& optimizer = wrapper.optimizer();
      for (std::size_t block = 0; block < wrapper.parameters().blocks().size(); ++block) {
        for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
          run.collectives.broadcast(optimizer.state(block, slot), 0);
        }
      }
    }
  }

 private:
  parallel::PostLocalSgd* averages_;
};

}  // namespace

PrioritizedHook post_local_hook(parallel::PostLocalSgd& averages) {
  return {Priority::highest, std::make_unique<PostLocalHook>(averages)};
}

}  // namespace lockstep::engine
