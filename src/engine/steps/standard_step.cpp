// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/sample.hpp>
#include <lockstep/parallel/manual_synchronisation.hpp>

#include <memory>
#include <optional>
#include <sstream>

#include "rows.hpp"

namespace lockstep::engine {

namespace {

std::vector<std::string> words_of(const Section& train, const std::string& key) {
  std::vector<std::string> words;
  std::istringstream text(train.text(key));
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  if (words.size() == 1 && !words[0].empty()) return words;
  throw ConfigError(train.cite(key) + ": this step takes one; for several write a step of your own and add its row");
}

void require_not_over(const StepContext& at) {
  if (at.where < 1) return;
  throw std::logic_error(
      "a step after the end of the training (where is 1): the sampler went on from another place than the run; resume "
      "with the global batch and the length that the run had");
}

/// Averages gradients after backward, in place of the wrapper's reducer.
class ByHand {
 public:
  explicit ByHand(StepContext& at) : reducer_(at.strategy.model().model(), at.strategy.collectives()) {}
  void all_reduce() { reducer_.all_reduce(); }

  static void require_possible(const StepContext& at) {
    const bool has_whole_gradients = at.strategy.world().size() == 1 || at.strategy.model().has_buckets();
    if (has_whole_gradients && !at.strategy.optimizer().minimises()) return;
    throw ConfigError("train.manual_reduction is for whole gradients: set train.lanes=0 and strategy.name=ddp");
  }

 private:
  parallel::ManualReducer reducer_;
};

}  // namespace

TrainStep standard_step(const Section& train) {
  const SampleKeys keys{.inputs = words_of(train, "input_keys"), .targets = words_of(train, "target_keys")};
  const bool is_manual = train.boolean("manual_reduction");
  const auto by_hand = std::make_shared<std::unique_ptr<ByHand>>();  // from the first step on
  return [keys, is_manual, by_hand](StepContext& at) {
    require_training_mode(at);
    require_not_over(at);
    parallel::DistributedDataParallel& wrapper = at.strategy.model();
    optim::OptimWrapper& optimizer = at.strategy.optimizer();
    if (is_manual && !*by_hand) {
      ByHand::require_possible(at);
      *by_hand = std::make_unique<ByHand>(at);
    }
    const data::ValueMap sample = construct_sample(keyed_batch(at.batch), keys);
    const auto frame = wrapper.micro_batch(optimizer, at.reads_gradients || is_manual);
    LastBatch last = begin_batch(at);
    last.input = tensor_of(sample, "input");
    last.target = wrapper.on_device(tensor_of(sample, "target"));
    models::ParsedLosses losses;
    {
      std::optional<parallel::DistributedDataParallel::NoSync> no_sync;
      if (is_manual) {
        no_sync.emplace(wrapper);
        if (optimizer.completes_step()) parallel::manual_sync_parameters(wrapper);
      }
      const auto context = wrapper.optim_context(optimizer);
      const at::Tensor output = timed_forward(at, last);
      losses = timed_losses(at, last, output, models::LossSum::main);
    }
    wrapper.name_anomalous(losses.total);
    return finish_step(at, losses, last, is_manual ? [&] { (*by_hand)->all_reduce(); } : std::function<void()>());
  };
}

}  // namespace lockstep::engine
