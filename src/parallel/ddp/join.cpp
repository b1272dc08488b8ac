// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/join.hpp>

#include <string>
#include <utility>

#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kManySteps = 1000;

enum class Says : std::uint8_t { exhausted, accumulates, synchronizes };

[[noreturn]] void stop_early(const std::vector<int>& exhausted, int rank) {
  std::string ranks;
  bool is_here = false;
  for (const int each : exhausted) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(each);
    is_here = is_here || each == rank;
  }
  const std::string fact =
      "join: rank" + (exhausted.size() == 1 ? " " + ranks + " has" : "s " + ranks + " have") + " exhausted all inputs";
  throw_agreed(ExitCode::data, is_here ? fact : fact + " while this rank has more inputs: all ranks stop");
}

UnevenRanks& uneven_ranks_of(DistributedDataParallel& wrapper) { return dynamic_cast<UnevenRanks&>(wrapper.reducer()); }

}  // namespace

Join::Join(DistributedDataParallel& wrapper, const JoinOptions& options)
    : Join(std::vector<DistributedDataParallel*>{&wrapper}, options) {}

Join::Join(std::vector<DistributedDataParallel*> wrappers, const JoinOptions& options) : options_(options) {
  if (!options_.is_enabled) return;
  for (DistributedDataParallel* const wrapper : wrappers) {
    if (wrapper->store_->is_shared()) {
      throw ConfigError(
          "join: parameters are shared, and the parameters that a rank without inputs owns would not be updated; set "
          "ddp.shared_parameters=false");
    }
    if (wrapper->options_.weighs_samples) {
      throw ConfigError("join: a rank without inputs has no number of samples; set ddp.weigh_samples=false");
    }
    if (wrapper->options_.lanes > 0) throw ConfigError("join: lanes require inputs on all ranks; set train.lanes=0");
    if (dynamic_cast<const UnevenRanks*>(wrapper->reducer_.get()) == nullptr) {
      throw ConfigError(
          "join: gradients of shards or of separate parts require inputs on all ranks; set strategy.name=ddp and "
          "strategy.separate=false");
    }
    if (wrapper->before_forward_) throw ConfigError("join: the wrapper is already in a Join");
  }
  wrappers_ = std::move(wrappers);
  for (DistributedDataParallel* const wrapper : wrappers_) {
    wrapper->before_forward_ = [this, wrapper] {
      const Round round = meet(*wrapper, /*has_input=*/true);
      authority_ = round.highest;
      adopt(*wrapper, round);
    };
  }
}

Join::~Join() { leave(); }

void Join::leave() noexcept {
  for (DistributedDataParallel* const wrapper : wrappers_) {
    wrapper->before_forward_ = nullptr;
    wrapper->buffer_root_ = 0;
    uneven_ranks_of(*wrapper).set_divisor(wrapper->collectives_->world_size());
  }
  wrappers_.clear();
}

/// States the others whether this rank has an input, and learns the same of them. Collective.
Join::Round Join::meet(DistributedDataParallel& wrapper, bool has_input) const {
  mpi::Collectives& collectives = *wrapper.collectives_;
  const Says mine = !has_input ? Says::exhausted : wrapper.synchronizes_ ? Says::synchronizes : Says::accumulates;
  std::vector<Says> all(static_cast<std::size_t>(collectives.world_size()));
  collectives.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  Round round;
  int synchronizing = 0;
  for (int rank = 0; rank < collectives.world_size(); ++rank) {
    const Says says = all[static_cast<std::size_t>(rank)];
    if (says == Says::exhausted) {
      round.exhausted.push_back(rank);
      continue;
    }
    round.highest = rank;
    ++round.active;
    if (says == Says::synchronizes) ++synchronizing;
  }
  round.synchronizes = synchronizing > 0;
  if (round.active > 0 && !round.exhausted.empty() && options_.throws_early) {
    stop_early(round.exhausted, collectives.rank());
  }
  if (round.synchronizes && synchronizing < round.active) {
    throw_agreed(ExitCode::configuration,
                 "join: some ranks synchronize a step in which others only accumulate; use no_sync for the same steps "
                 "on every rank");
  }
  return round;
}

void Join::adopt(DistributedDataParallel& wrapper, const Round& round) const {
  wrapper.buffer_root_ = round.highest;
  if (!options_.divide_by_initial) uneven_ranks_of(wrapper).set_divisor(round.active);
}

/// The work that the ranks with inputs do in one step, without one.
void Join::shadow(DistributedDataParallel& wrapper, const Round& round) const {
  if (!round.synchronizes) return;
  adopt(wrapper, round);
  wrapper.synchronize_before_forward();
  uneven_ranks_of(wrapper).contribute_zeros();
}

void Join::finish() {
  if (wrappers_.empty()) return;
  std::int64_t steps = 0;
  for (Round round = meet(*wrappers_[0], false); round.active > 0; round = meet(*wrappers_[0], false)) {
    authority_ = round.highest;
    shadow(*wrappers_[0], round);
    for (std::size_t i = 1; i < wrappers_.size(); ++i) shadow(*wrappers_[i], meet(*wrappers_[i], false));
    if (++steps != kManySteps) continue;
    log::warning("join: rank " + std::to_string(wrappers_[0]->collectives_->rank()) + " has at least " +
                 std::to_string(kManySteps) +
                 " fewer inputs than other ranks and waits for them in each step; divide the data more evenly");
  }
  for (DistributedDataParallel* const wrapper : wrappers_) {
    if (steps > 0) wrapper->store_->drop_gradients();  // those of the others
    if (authority_ >= 0) wrapper->broadcast_state(authority_);
  }
  leave();
}

}  // namespace lockstep::parallel
