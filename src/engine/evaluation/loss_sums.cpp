// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/loss_sums.hpp"

#include <lockstep/core/error.hpp>

#include <span>

#include "core/text/text.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::engine {

namespace {

double items_of(const std::string& name, const std::vector<std::pair<std::string, double>>& counts, double usual) {
  const std::string entry = name.substr(0, name.find('/'));  // name of the map, if it is an element of one
  for (const auto& [each, count] : counts) {
    if (each == entry || (each == "loss" && entry == "loss_raw")) return count;
  }
  return usual;
}

/// The total of losses that run over different items.
double sum_of_trained(const std::vector<std::pair<std::string, double>>& means) {
  double sum = 0;
  for (std::size_t i = 1; i < means.size(); ++i) {
    const std::string& name = means[i].first;
    const bool is_trained = name.find('/') == std::string::npos && name.find("loss") != std::string::npos;
    if (is_trained) sum += means[i].second;
  }
  return sum;
}

}  // namespace

void LossSums::add(std::int64_t batch, const models::ParsedLosses& losses,
                   const std::vector<std::pair<std::string, double>>& counts, double usual) {
  if (names_.empty()) {
    for (const auto& [name, value] : losses.values) names_.push_back(name);
    sums_.assign(names_.size() * batches_, 0.0);
    items_.assign(names_.size() * batches_, 0.0);
    are_counted_ = !counts.empty();
  }
  const std::vector<std::pair<std::string, double>> values = models::host_values(losses);
  if (values.size() != names_.size()) throw ConfigError("the losses of the model differ from the first batch");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t place = i * batches_ + static_cast<std::size_t>(batch);
    items_[place] = items_of(values[i].first, counts, usual);
    if (items_[place] > 0) sums_[place] = values[i].second * items_[place];
  }
}

std::vector<std::pair<std::string, double>> LossSums::means(const mpi::Communicator& world,
                                                            mpi::Collectives& collectives) {
  std::string names = joined(names_, "\n");
  names = world.broadcast(names);  // rank 0 has a batch if any rank has one
  are_counted_ = world.all_reduce(static_cast<std::int64_t>(are_counted_ ? 1 : 0)) > 0;
  world.all_or_throw([&] {
    if (names_.empty() || joined(names_, "\n") == names) return;
    throw ConfigError("the model returned the losses '" + joined(names_) + "', but those of rank 0 differ");
  });
  names_ = split_list(names, '\n');
  sums_.resize(names_.size() * batches_);
  items_.resize(names_.size() * batches_);
  collectives.all_reduce(sums_.data(), sums_.size(), DType::float64, mpi::ReduceOp::sum);
  collectives.all_reduce(items_.data(), items_.size(), DType::float64, mpi::ReduceOp::sum);
  std::vector<std::pair<std::string, double>> means;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto of_batches = [&](const std::vector<double>& values) {
      return mpi::sum_by_lanes(std::span(values).subspan(i * batches_, batches_));
    };
    means.emplace_back(names_[i], of_batches(sums_) / of_batches(items_));
  }
  if (are_counted_ && means.size() > 1) means.front().second = sum_of_trained(means);
  return means;
}

}  // namespace lockstep::engine
