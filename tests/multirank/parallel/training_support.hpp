// SPDX-License-Identifier: BSD-3-Clause
// What the tests of hooks, joins and several wrappers have in common.
#pragma once

#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::testing {

/// All ranks, and a line between them.
class RanksTest : public ::testing::Test {
 protected:
  RanksTest() : collectives_(mpi::make_collectives(world_, {.backend = "auto", .timeout_s = 60})) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  std::unique_ptr<parallel::DistributedDataParallel> wrap(std::shared_ptr<models::Model> model,
                                                          const parallel::DdpOptions& options = {}) {
    return std::make_unique<parallel::DistributedDataParallel>(std::move(model), world_, *collectives_, options);
  }

  /// Whether all ranks hold the same bytes. Collective.
  bool is_same_everywhere(const at::Tensor& tensor) const {
    const at::Tensor mine = tensor.detach().contiguous();
    const auto all = world_.all_gather(std::string(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes()));
    return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; });
  }
  bool is_same_everywhere(const models::Model& model) const {
    bool is_same = true;
    for (const auto& parameter : model.parameters()) is_same = is_same_everywhere(parameter) && is_same;
    for (const auto& buffer : model.buffers()) is_same = is_same_everywhere(buffer) && is_same;
    return is_same;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_;
};

/// A model whose loss is the mean squared distance.
class SquaredModel : public models::Model {
 public:
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }
};

/// in -> width -> out, in float64 with fixed initial values.
class TwoLayers : public SquaredModel {
 public:
  explicit TwoLayers(std::int64_t in = 3, std::int64_t width = 4, std::int64_t out = 2) {
    torch::manual_seed(1);
    first = register_module("first", std::make_shared<models::Linear>(in, width));
    second = register_module("second", std::make_shared<models::Linear>(width, out));
    to(at::kDouble);
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& input) override {
    return models::run(*second, at::tanh(models::run(*first, input)));
  }

  std::shared_ptr<models::Linear> first;
  std::shared_ptr<models::Linear> second;
};

/// Different for every (rank, step).
inline data::Batch batch_of(int rank, int step, std::int64_t samples = 2, std::int64_t in = 3, std::int64_t out = 2) {
  const at::Tensor input = at::sin(torch::arange(samples * in, at::kDouble).view({samples, in}) + rank - 0.25 * step);
  const at::Tensor target = torch::arange(samples * out, at::kDouble).view({samples, out}) * 0.25 - 0.125 * rank;
  return {input, target};
}

/// One optimizer over all that a wrapper trains.
inline optim::OptimWrapper optimizer_of(parallel::DistributedDataParallel& wrapper, const std::string& name = "sgd",
                                        double lr = 0.125, std::int64_t accumulation_steps = 1) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("name", name, "test");
  section.set("lr", std::to_string(lr), "test");
  const optim::Rule& rule = optim::find_rule(name);
  parallel::ParameterStore& store = wrapper.parameters();
  std::vector<optim::ParameterInfo> infos;
  for (std::size_t i = 0; i < store.size(); ++i) {
    infos.push_back({store.parameter(i).name, store.parameter(i).tensor.dim()});
  }
  return {optim::Optimizer(rule, optim::build_groups(section, rule, infos), store),
          store,
          {.accumulation_steps = accumulation_steps}};
}

/// Backward of one batch, without an update.
inline void backward(parallel::DistributedDataParallel& wrapper, const data::Batch& batch) {
  models::total_loss(wrapper.model().losses(wrapper.forward(batch.input), batch.target)).backward();
}

inline std::vector<at::Tensor> gradients_of(const models::Model& model) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return gradients;
}

inline std::vector<at::Tensor> values_of(const models::Model& model) {
  std::vector<at::Tensor> values;
  for (const auto& parameter : model.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

inline void expect_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
  }
}

/// Up to the rounding of float64 sums.
inline void expect_close(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-11, 1e-13)) << i << ": " << actual[i] << expected[i];
  }
}

/// The text of the error of class E that `work` throws; empty if it throws nothing.
template <class E>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

/// Counts what is asked of the collectives behind it.
class CountingCollectives : public mpi::Collectives {
 public:
  explicit CountingCollectives(mpi::Collectives& inner) : inner_(&inner) {}

  int operations = 0;        ///< of any kind
  std::size_t elements = 0;  ///< that were reduced

  std::string_view name() const noexcept override { return inner_->name(); }
  int rank() const noexcept override { return inner_->rank(); }
  int world_size() const noexcept override { return inner_->world_size(); }
  int local_rank() const noexcept override { return inner_->local_rank(); }
  int local_size() const noexcept override { return inner_->local_size(); }
  mpi::BucketMemory allocate_bucket(std::size_t bytes) override { return inner_->allocate_bucket(bytes); }
  mpi::Ticket start_all_reduce(void* values, std::size_t count, DType dtype, mpi::ReduceOp op) override {
    ++operations;
    elements += count;
    return inner_->start_all_reduce(values, count, dtype, op);
  }
  void wait(mpi::Ticket ticket) override { inner_->wait(ticket); }
  mpi::Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, mpi::ReduceOp op) override {
    ++operations;
    elements += count;
    return inner_->start_reduce_ranges(values, count, dtype, op);
  }
  void reduce_range(mpi::Ticket ticket, mpi::Slice range, const mpi::RangeConsumer& consume) override {
    inner_->reduce_range(ticket, range, consume);
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    ++operations;
    inner_->broadcast(bytes, root);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++operations;
    inner_->all_gather(mine, all);
  }
  void reduce_scatter(void* values, std::size_t count, DType dtype, mpi::ReduceOp op, void* slice) override {
    ++operations;
    inner_->reduce_scatter(values, count, dtype, op, slice);
  }
  void barrier() override {
    ++operations;
    inner_->barrier();
  }
  std::unique_ptr<mpi::Collectives> split(int color) override { return inner_->split(color); }

 private:
  mpi::Collectives* inner_;
};

}  // namespace lockstep::testing
