// SPDX-License-Identifier: BSD-3-Clause
// Every host divides a copy of the state among its ranks. Several hosts are tried on one.
#include <cmath>

#include "optim/clip.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel/store/shards.hpp"
#include "parallel_test.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace hybrid_shards_test {

const std::vector<std::int64_t> kWidths = {130, 90};  // several pieces, which the ranks of a host cut
constexpr double kLr = 0.125;

/// Gradients are products of inputs and targets. With eighths, their sums are exact in any order, and so are averages
/// over 2 or 4 ranks.
class LinearModel : public Layers {
 public:
  LinearModel() : Layers(kWidths) {}
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output * target).sum()}};
  }
};

class HybridShardsTest : public ParallelTest {
 protected:
  /// The numbers of hosts that can have as many ranks each.
  std::vector<int> numbers_of_hosts() const {
    std::vector<int> numbers;
    for (int hosts = 1; hosts <= size(); ++hosts) {
      if (size() % hosts == 0) numbers.push_back(hosts);
    }
    return numbers;
  }

  /// Shared memory, messages, and both.
  std::vector<std::unique_ptr<mpi::Collectives>> backends(int hosts) const {
    std::vector<std::unique_ptr<mpi::Collectives>> all;
    all.push_back(make_collectives());
    all.push_back(make_collectives("mpi"));
    all.push_back(mpi::make_collectives(world_, {.timeout_s = 60, .hosts = hosts}));
    return all;
  }

  static DdpOptions options_of(int stage, int hosts) {
    DdpOptions options{.reducer = {.limits = {.bucket_bytes = {20000}, .last_bucket_bytes = 0}}, .hosts = hosts};
    options.sharding.stage = stage;
    options.sharding.is_within_hosts = true;
    return options;
  }

  static void backward(DistributedDataParallel& wrapper, const batch::Batch& batch) {
    models::total_loss(wrapper.model().losses(wrapper.forward(batch.input()), batch.target())).backward();
  }

  /// This rank's parts of the averaged gradients beside the same parts of `expected`.
  /// @param bounds  of the differences, by parameter
  static void expect_slices(DistributedDataParallel& wrapper, const std::vector<at::Tensor>& expected,
                            const std::vector<at::Tensor>& bounds) {
    wrapper.store().finish_gradients();
    for (std::size_t b = 0; b < wrapper.store().blocks().size(); ++b) {
      const std::vector<optim::Segment>& segments = wrapper.store().blocks()[b].segments;
      for (std::size_t s = 0; s < segments.size(); ++s) {
        const std::size_t i = wrapper.store().index_of(b, s);
        const auto part_of = [&](const at::Tensor& whole) {
          return whole.flatten().slice(0, segments[s].own_begin, segments[s].own_end);
        };
        const at::Tensor own =
            ability_of<TensorSlices>(wrapper.reducer())->part_of(i, segments[s].own_begin, segments[s].own_end);
        const at::Tensor off = (own.to(at::kDouble) - part_of(expected[i])).abs();
        EXPECT_TRUE((off <= part_of(bounds[i])).all().item<bool>())
            << "parameter " << i << ": " << off.max().item<double>();
      }
    }
  }

  static void add(std::vector<at::Tensor>& sums, const std::vector<at::Tensor>& terms) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
  }

  static std::vector<at::Tensor> zeros_like(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> zeros;
    for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
    return zeros;
  }
};

// One process takes the same steps.
TEST_F(HybridShardsTest, ExactSumsGiveTheBitsOfOneProcess) {
  for (const int hosts : numbers_of_hosts()) {
    for (const auto& all : backends(hosts)) {
      for (int stage = 1; stage <= 3; ++stage) {
        for (const std::int64_t micro_batches : {1, 3}) {
          SCOPED_TRACE(std::string(all->name()) + ", " + std::to_string(hosts) + " hosts, stage " +
                       std::to_string(stage) + ", " + std::to_string(micro_batches) + " micro-batches");
          const auto model = std::make_shared<LinearModel>();
          LinearModel alone;
          DistributedDataParallel wrapper(model, world_, *all, options_of(stage, hosts));
          EXPECT_EQ(wrapper.store().copies(), hosts);
          auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", std::to_string(kLr)}},
                                          {.accumulation_steps = micro_batches});
          for (int step = 0; step < 3; ++step) {
            std::vector<at::Tensor> sums = zeros_like(values_of(alone));
            for (int k = 0; k < micro_batches; ++k) {
              const int number = 10 * step + k;
              wrapper.train_step(batch_of(rank(), number, kWidths), optimizer, models::LossWeights(1));
              add(sums, average_gradients(alone, size(),
                                          [&](int peer) { return loss_of(alone, batch_of(peer, number, kWidths)); }));
            }
            const torch::NoGradGuard no_grad;
            for (std::size_t i = 0; i < sums.size(); ++i) alone.parameters()[i].sub_(sums[i] * kLr);
          }
          const bool is_exact = size() != 3 || micro_batches == 1;  // a third of a sum is rounded once
          wrapper.store().read_whole([&] { expect_equal(values_of(*model), values_of(alone), is_exact ? 0 : 1e-13); });
        }
      }
    }
  }
}

// A sum of n numbers in any order is off by at most (n - 1) u times the sum of their sizes; the two averages are
// rounded products with rounded factors, which adds 4 u. u = 2^-24. A gradient is one product, the same on all ranks.
TEST_F(HybridShardsTest, OtherSumsAreRoundedAsTheTheorySays) {
  for (const int hosts : numbers_of_hosts()) {
    SCOPED_TRACE(std::to_string(hosts) + " hosts");
    const auto model = std::make_shared<LinearModel>();
    LinearModel alone;
    model->to(at::kFloat);
    alone.to(at::kFloat);
    const auto batch = [](int peer) {
      batch::Batch thirds = batch_of(peer, 1, kWidths, 1, at::kFloat);
      thirds.set_input(thirds.input() / 3);
      return thirds;
    };
    std::vector<at::Tensor> means;
    for (const at::Tensor& value : values_of(alone)) means.push_back(at::zeros_like(value, at::kDouble));
    std::vector<at::Tensor> bounds = zeros_like(means);
    for (int r = 0; r < size(); ++r) {
      drop_gradients(alone);
      loss_of(alone, batch(r)).backward();
      for (std::size_t i = 0; i < means.size(); ++i) {
        const at::Tensor gradient = alone.parameters()[i].grad().to(at::kDouble) / size();
        means[i] += gradient;
        bounds[i] += gradient.abs() * ((size() + 3) * std::ldexp(1.0, -24));
      }
    }
    DistributedDataParallel wrapper(model, world_, *collectives_, options_of(2, hosts));
    backward(wrapper, batch(rank()));
    expect_slices(wrapper, means, bounds);
  }
}

// Gradients come whole to all hosts however the micro-batches end.
TEST_F(HybridShardsTest, BackwardsAfterTheLastMicroBatchAndWithoutOneCount) {
  for (const int hosts : numbers_of_hosts()) {
    SCOPED_TRACE(std::to_string(hosts) + " hosts");
    LinearModel alone;
    std::vector<at::Tensor> sums = zeros_like(values_of(alone));
    for (int step = 0; step < 3; ++step) {
      add(sums,
          average_gradients(alone, size(), [&](int peer) { return loss_of(alone, batch_of(peer, step, kWidths)); }));
    }
    std::vector<at::Tensor> bounds;  // none, unless a third of a sum is rounded
    for (const at::Tensor& sum : sums) bounds.push_back(size() == 3 ? sum.abs() * 1e-14 + 1e-14 : at::zeros_like(sum));
    DistributedDataParallel wrapper(std::make_shared<LinearModel>(), world_, *collectives_, options_of(2, hosts));
    for (int step = 0; step < 3; ++step)
      backward(wrapper, batch_of(rank(), step, kWidths));  // each is the last of the step
    expect_slices(wrapper, sums, bounds);
    wrapper.parameters().drop_gradients();
    {
      const auto only_here = wrapper.no_sync();
      for (int step = 0; step < 3; ++step) backward(wrapper, batch_of(rank(), step, kWidths));
    }
    expect_slices(wrapper, sums, bounds);
    wrapper.parameters().drop_gradients();
    backward(wrapper, batch_of(rank(), 7, kWidths));  // given up before it is finished
    wrapper.reset_state();
    for (int step = 0; step < 3; ++step) backward(wrapper, batch_of(rank(), step, kWidths));
    expect_slices(wrapper, sums, bounds);
  }
}

// Two roundings to 8 bits of precision inside of a host, one between hosts, u = 2^-8 each; and numbers of 16 bits come.
TEST_F(HybridShardsTest, CompressedGradientsAreRoundedOnceMore) {
  if (size() == 1) GTEST_SKIP() << "one rank ignores the hook";
  Section ddp = Section::with_defaults("ddp", ddp_keys());
  ddp.set("comm_hook", "bf16", "test");
  for (const int hosts : numbers_of_hosts()) {
    SCOPED_TRACE(std::to_string(hosts) + " hosts");
    LinearModel alone;
    const auto batch = [](int peer) { return batch_of(peer, 1, kWidths); };
    const auto means = average_gradients(alone, size(), [&](int peer) { return loss_of(alone, batch(peer)); });
    std::vector<at::Tensor> bounds = zeros_like(means);
    for (int r = 0; r < size(); ++r) {
      drop_gradients(alone);
      loss_of(alone, batch(r)).backward();
      for (std::size_t i = 0; i < bounds.size(); ++i) {
        bounds[i] += alone.parameters()[i].grad().abs() * (3.1 / 256 / size());
      }
    }
    DdpOptions options = options_of(2, hosts);
    options.comm_hook = DdpOptions::from(ddp, *collectives_).comm_hook;
    testing::CountingCollectives counted(make_collectives());
    DistributedDataParallel wrapper(std::make_shared<LinearModel>(), world_, counted, options);
    if (hosts > 1) counted.split_number(1).take_counts();
    backward(wrapper, batch(rank()));
    expect_slices(wrapper, means, bounds);
    const at::Tensor own = ability_of<TensorSlices>(wrapper.reducer())
                               ->part_of(0, wrapper.store().blocks()[0].segments[0].own_begin,
                                         wrapper.store().blocks()[0].segments[0].own_end);
    EXPECT_TRUE(at::equal(own.to(at::kBFloat16).to(own.scalar_type()), own));
    if (hosts == 1) continue;
    std::int64_t slices = 0;
    for (const optim::FlatBlock& block : wrapper.store().blocks()) slices += block.count;
    EXPECT_EQ(counted.split_number(1).take_counts().bytes_reduced, 2 * static_cast<std::size_t>(slices));
  }
}

// The norm of all gradients, once; a gradient that is not finite on one rank is one on all.
TEST_F(HybridShardsTest, NormsCountEachShardOnce) {
  for (const int hosts : numbers_of_hosts()) {
    for (int stage = 1; stage <= 3; ++stage) {
      for (const bool is_as_on_gpu : {false, true}) {
        SCOPED_TRACE(std::to_string(hosts) + " hosts, stage " + std::to_string(stage));
        LinearModel alone;
        const auto means =
            average_gradients(alone, size(), [&](int peer) { return loss_of(alone, batch_of(peer, 0, kWidths)); });
        double squares = 0;
        for (const at::Tensor& mean : means) squares += mean.square().sum().item<double>();
        DdpOptions options = options_of(stage, hosts);
        options.sharding.is_as_on_gpu = is_as_on_gpu;
        DistributedDataParallel wrapper(std::make_shared<LinearModel>(), world_, *collectives_, options);
        auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}}, {.clip = {.max_norm = 1}});
        const StepResult result = wrapper.train_step(batch_of(rank(), 0, kWidths), optimizer);
        EXPECT_NEAR(result.update.grad_norm.value(), std::sqrt(squares), 1e-13 * std::sqrt(squares));
        batch::Batch spoilt = batch_of(rank(), 1, kWidths);
        if (is_last()) spoilt.set_input(spoilt.input() / 0.0);
        EXPECT_FALSE(wrapper.train_step(spoilt, optimizer).update.is_finite);
        EXPECT_TRUE(wrapper.train_step(batch_of(rank(), 2, kWidths), optimizer).update.updated);
      }
    }
  }
}

// 2 (H - 1) / H of the bytes of a slice go from each rank to other hosts with the rings of NCCL, once for every step;
// all else stays inside of a host. Counted are the arrays.
TEST_F(HybridShardsTest, SlicesAloneTravelBetweenHosts) {
  constexpr std::size_t kMicroBatches = 3;
  for (const int hosts : numbers_of_hosts()) {
    if (hosts == 1) continue;
    for (int stage = 2; stage <= 3; ++stage) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts, stage " + std::to_string(stage));
      testing::CountingCollectives counted(make_collectives());
      DdpOptions options = options_of(stage, hosts);
      options.sharding.blocks = {"l*"};
      options.sharding.prefetches = false;  // a prefetch runs in a thread with collectives of its own
      const std::vector<std::int64_t> widths = {70, 90, 33, 8};
      const auto model = std::make_shared<Layers>(widths);
      DistributedDataParallel wrapper(model, world_, counted, options);
      testing::CountingCollectives& inside = counted.split_number(0);
      testing::CountingCollectives& across = counted.split_number(1);
      EXPECT_EQ(inside.world_size(), size() / hosts);
      EXPECT_EQ(across.world_size(), hosts);
      auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}}, {.accumulation_steps = kMicroBatches});
      std::size_t bytes = 0;  // the bytes of all parameters, with padding
      for (const Unit& unit : wrapper.store().shards()->units()) bytes += static_cast<std::size_t>(unit.count()) * 8;
      for (testing::CountingCollectives* const each : {&counted, &inside, &across}) each->take_counts();
      for (int k = 0; k < static_cast<int>(kMicroBatches); ++k) {
        wrapper.train_step(batch_of(rank(), k, widths), optimizer);
      }
      const auto of_all = counted.take_counts();
      const auto of_inside = inside.take_counts();
      const auto of_across = across.take_counts();
      EXPECT_EQ(of_all.bytes_reduced, model->parameters().size());  // which of them have gradients
      EXPECT_EQ(of_all.bytes_scattered + of_all.bytes_gathered, 0U);
      EXPECT_EQ(of_across.bytes_reduced, bytes / static_cast<std::size_t>(size() / hosts));
      EXPECT_EQ(of_across.bytes_scattered + of_across.bytes_gathered, 0U);
      EXPECT_EQ(of_inside.bytes_reduced, 0U);
      if (size() == hosts) {  // one rank has all
        EXPECT_EQ(of_inside.bytes_scattered + of_inside.bytes_gathered, 0U);
        continue;
      }
      EXPECT_EQ(of_inside.bytes_scattered, kMicroBatches * bytes);
      // Stage 2 makes parameters whole after the update, stage 3 for every forward and backward, but for the blocks
      // that stay between the two.
      EXPECT_LE(of_inside.bytes_gathered, stage == 2 ? bytes : 2 * kMicroBatches * bytes);
      EXPECT_GE(of_inside.bytes_gathered, stage == 2 ? bytes : kMicroBatches * bytes);
    }
  }
}

TEST_F(HybridShardsTest, AllHostsBeginWithTheValuesOfRankZero) {
  const std::vector<at::Tensor> expected = values_of(LinearModel());
  for (int stage = 1; stage <= 3; ++stage) {
    const auto model = std::make_shared<LinearModel>();
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model->parameters()) parameter.add_(rank());
    DistributedDataParallel wrapper(model, world_, *collectives_, options_of(stage, numbers_of_hosts().back()));
    wrapper.store().read_whole([&] { expect_equal(values_of(*model), expected); });
  }
}

TEST_F(HybridShardsTest, HostsWithOtherNumbersOfRanksAreRefusedOnAllRanks) {
  if (size() != 3) GTEST_SKIP() << "two ranks on one host, one on the other";
  for (int stage = 1; stage <= 3; ++stage) {
    const std::string text = refusal(
        [&] { DistributedDataParallel(std::make_shared<LinearModel>(), world_, *collectives_, options_of(stage, 2)); });
    EXPECT_TRUE(contains(text, "there are 2 on the host of rank 0 and 1 on the host of rank 2")) << text;
  }
}

}  // namespace hybrid_shards_test
}  // namespace lockstep::parallel
