// SPDX-License-Identifier: BSD-3-Clause
// What a plain forward and backward leave in `.grad`.
#include <lockstep/log/log.hpp>

#include <torch/autograd.h>

#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::parallel {
namespace gradients_test {

using GradientsTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

TEST_F(GradientsTest, AreTheAverageOverRanks) {
  Layers alone(kWidths);
  for (const BucketLimits& limits : {BucketLimits{}, BucketLimits{{8}, 8}}) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = {.limits = limits}});
    for (int step = 0; step < 3; ++step) {
      const batch::Batch batch = batch_of(rank(), step, kWidths);
      drop_gradients(*model);
      models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
      expect_gradients(
          *model, average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch_of(r, step, kWidths)); }));
      for (const auto& parameter : model->parameters()) EXPECT_TRUE(is_same_everywhere(parameter.grad()));
    }
  }
}

TEST_F(GradientsTest, AreViewsOfBuckets) {
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  std::vector<void*> places;
  for (int step = 0; step < 3; ++step) {  // the second step has new buckets
    const batch::Batch batch = batch_of(rank(), step, kWidths);
    drop_gradients(*model);
    models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      void* const place = model->parameters()[i].grad().data_ptr();
      if (step == 1) {
        places.push_back(place);
      } else if (step == 2 && size() > 1) {
        EXPECT_EQ(place, places[i]);
      }
    }
  }
}

/// A layer of each type: fp64, fp32, fp64, and one that only some forwards use.
class MixedTypes : public Layers {
 public:
  MixedTypes() : Layers({4, 5, 4, 3}) {
    layers[1]->to(at::kFloat);
    layers[2]->to(at::kDouble);
    unused = register_module("unused", std::make_shared<Linear>(3, 3));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor hidden = at::tanh(run(0, input)).to(at::kFloat);
    return run(2, at::tanh(run(1, hidden)).to(at::kDouble));
  }

  std::shared_ptr<Linear> unused;
};

// Cases 25 and 26.
TEST_F(GradientsTest, OfSeveralTypesLieInBucketsOfTheirOwn) {
  for (const bool finds_unused : {false, true}) {
    auto model = std::make_shared<MixedTypes>();
    MixedTypes alone;
    if (!finds_unused) {
      for (const auto& parameter : model->unused->parameters()) parameter.set_requires_grad(false);
    }
    const auto wrapper = wrap(model, {.reducer = {.finds_unused = finds_unused}});
    for (int step = 0; step < 3; ++step) {
      drop_gradients(*model);
      const auto batch = [step](int r) { return batch_of(r, step, {4, 3}, 10); };
      const batch::Batch mine = batch(rank());
      models::total_loss(model->losses(wrapper->forward(mine.input()), mine.target())).backward();
      expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch(r)); }));
      EXPECT_FALSE(model->unused->weight.grad().defined());
    }
    if (size() == 1) continue;
    std::vector<DType> dtypes;
    for (const Bucket& bucket : report_of(wrapper->reducer()).buckets) dtypes.push_back(bucket.dtype);
    EXPECT_EQ(std::count(dtypes.begin(), dtypes.end(), DType::float32), 1);
    EXPECT_EQ(std::count(dtypes.begin(), dtypes.end(), DType::float64), 1);
    EXPECT_EQ(dtypes.size(), 2U);
  }
}

// Case 27: Adam with a layer that only the first step leaves unused.
TEST_F(GradientsTest, TrainALayerThatTheFirstStepLeavesOut) {
  const auto loss = [](Layers& model, int rank, int step) {
    const batch::Batch batch = batch_of(rank, step, kWidths);
    const at::Tensor hidden = model.run(0, batch.input());
    return step == 0 ? hidden.square().mean() : (model.run(1, at::tanh(hidden)) - batch.target()).square().mean();
  };
  const DdpSettings adam = {{"name", "adamw"}, {"lr", "0.125"}, {"weight_decay", "0"}};
  for (const bool zeroes : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = {.finds_unused = true}});
    optim::OptimWrapper optimizer = make_optimizer(wrapper->parameters(), adam);

    auto alone = std::make_shared<Layers>(kWidths);
    const mpi::Communicator myself = world_.split(rank());
    const auto no_collectives = mpi::make_collectives(myself, {});
    DistributedDataParallel reference(alone, myself, *no_collectives, {});
    optim::OptimWrapper reference_optimizer = make_optimizer(reference.parameters(), adam);

    for (int step = 0; step < 3; ++step) {
      wrapper->run([&] { return loss(*model, rank(), step); }).backward();
      const auto expected = average_gradients(*alone, size(), [&](int r) { return loss(*alone, r, step); });
      expect_gradients(*model, expected);
      for (std::size_t i = 0; i < expected.size(); ++i) alone->parameters()[i].mutable_grad() = expected[i];
      optimizer.optimizer().step();
      reference_optimizer.optimizer().step();
      expect_equal(values_of(*model), values_of(*alone));
      for (const auto& parameter : model->parameters()) {
        if (!zeroes) parameter.mutable_grad().reset();
        if (parameter.grad().defined()) parameter.mutable_grad().zero_();  // inside the bucket
      }
    }
  }
}

/// y = weight * x for every element.
class Scale : public models::Model {
 public:
  explicit Scale(at::Tensor value) { weight = register_parameter("weight", std::move(value)); }
  at::Tensor forward(const at::Tensor& input) override { return weight * input; }

  at::Tensor weight;
};

/// Returns whether this LibTorch (2.10 or newer) has gradients of another type than their parameters.
template <class Tensor>
bool set_gradient_type(Tensor& parameter, at::ScalarType type) {
  if constexpr (requires { parameter.set_grad_dtype(type); }) {
    parameter.set_grad_dtype(type);
    return true;
  }
  return false;
}

// Case 29.
TEST_F(GradientsTest, OfAWiderTypeThanTheirParametersAreReducedInIt) {
  auto model = std::make_shared<Scale>(torch::ones({3}, at::kBFloat16));
  if (!set_gradient_type(model->weight, at::kFloat)) GTEST_SKIP() << "requires LibTorch 2.10";
  const auto wrapper = wrap(model);
  for (int step = 0; step < 3; ++step) {
    drop_gradients(*model);
    const at::Tensor input = torch::full({3}, 1 + rank() / 128.0, at::kBFloat16);  // exact
    wrapper->forward(input).sum().backward();
    EXPECT_EQ(model->weight.grad().scalar_type(), at::kFloat);
    // Two ranks need one bit more than bfloat16 has.
    const at::Tensor expected = torch::full({3}, 1 + (size() - 1) / 256.0, at::kFloat);
    EXPECT_TRUE(at::allclose(model->weight.grad(), expected, 1e-6, 0)) << model->weight.grad();
  }
  if (size() > 1) {
    EXPECT_EQ(report_of(wrapper->reducer()).buckets.front().dtype, DType::float32);
  }
}

/// Four convolutions, each with a memory format and a type of its own.
class Convolutions : public models::Model {
 public:
  struct Kind {
    at::MemoryFormat format;
    at::ScalarType dtype;
  };

  explicit Convolutions(const std::vector<Kind>& kinds) {
    const std::vector<std::int64_t> channels = {4, 8, 16, 8, 4};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      auto layer = std::make_shared<models::Conv2d>(channels[i], channels[i + 1], 3);
      const torch::NoGradGuard no_grad;
      layer->weight.copy_(eighths(layer->weight.sizes(), static_cast<std::int64_t>(i)) / 8);
      layer->bias.copy_(eighths(layer->bias.sizes(), 3));
      layer->to(kinds[i].dtype);
      layer->weight.set_data(layer->weight.contiguous(kinds[i].format));
      layers.push_back(register_module("conv" + std::to_string(i), std::move(layer)));
    }
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor values = input;
    for (const auto& layer : layers) values = models::run(*layer, values.to(layer->weight.scalar_type()));
    return values;
  }

  std::vector<std::shared_ptr<models::Conv2d>> layers;
};

// Case 30.
TEST_F(GradientsTest, KeepTheMemoryFormatOfTheirParameters) {
  constexpr auto kPlain = at::MemoryFormat::Contiguous;
  constexpr auto kLast = at::MemoryFormat::ChannelsLast;
  const auto loss = [](const at::Tensor& output) {
    return (output.to(at::kDouble) - eighths(output.sizes(), 1)).square().mean();
  };
  const auto input = [](int rank, int step) { return eighths({2, 4, 6, 6}, 3 * step + rank, at::kFloat); };
  for (const auto& formats : std::vector<std::vector<at::MemoryFormat>>{
           {kPlain, kPlain, kPlain, kPlain}, {kLast, kLast, kPlain, kPlain}, {kLast, kLast, kLast, kLast}}) {
    for (const auto& dtypes : std::vector<std::vector<at::ScalarType>>{{at::kFloat, at::kFloat, at::kFloat, at::kFloat},
                                                                       {at::kFloat, at::kHalf, at::kHalf, at::kFloat},
                                                                       {at::kHalf, at::kHalf, at::kHalf, at::kHalf}}) {
      std::vector<Convolutions::Kind> kinds;
      for (std::size_t i = 0; i < formats.size(); ++i) kinds.push_back({formats[i], dtypes[i]});
      const bool has_half = dtypes[1] == at::kHalf;
      for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{25} << 20}) {
        auto model = std::make_shared<Convolutions>(kinds);
        Convolutions alone(kinds);
        const auto wrapper =
            wrap(model, {.reducer = {.limits = {.bucket_bytes = {bucket_bytes}, .last_bucket_bytes = 0}}});
        for (int step = 0; step < 3; ++step) {  // made, in new buckets, zeroed
          for (const auto& parameter : model->parameters()) {
            if (step == 2) parameter.mutable_grad().zero_();
            if (step < 2) parameter.mutable_grad().reset();
          }
          loss(wrapper->forward(input(rank(), step))).backward();
          const auto expected =
              average_gradients(alone, size(), [&](int r) { return loss(alone.forward(input(r, step))); });
          expect_gradients(*model, expected, has_half ? 1e-2 : 1e-5);  // kernels differ by layout
          for (const auto& parameter : model->parameters()) {
            EXPECT_EQ(parameter.grad().strides(), parameter.strides());
          }
        }
      }
    }
  }
}

// Case 31.
TEST_F(GradientsTest, OfASharedWeightAreSummedBeforeTheyAreAveraged) {
  constexpr std::int64_t kSide = 512;
  const BucketLimits small = {.bucket_bytes = {1 << 16}, .last_bucket_bytes = 0};
  for (const bool zeroes : {false, true}) {
    auto model = std::make_shared<Scale>(torch::ones({kSide, kSide}));
    const auto wrapper = wrap(model, {.reducer = {.limits = small}});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = wrapper->run([&] {
        const at::Tensor factor = torch::full({}, rank() + 1, at::kFloat);
        return model->forward(factor).sum() + model->forward(factor).sum();
      });
      loss.backward();
      EXPECT_TRUE(at::equal(model->weight.grad(), torch::full_like(model->weight, size() + 1.0)));
      if (zeroes) {
        model->weight.mutable_grad().zero_();
      } else {
        model->weight.mutable_grad().reset();
      }
    }
  }
}

/// One weight under two names, which forward does not use.
class TwiceNamed : public Layers {
 public:
  TwiceNamed() : Layers(kWidths) {
    const at::Tensor shared = torch::ones({2}, at::kDouble);
    first = register_parameter("first", shared);
    register_parameter("second", first);
  }
  at::Tensor first;
};

// Case 32.
TEST_F(GradientsTest, AnUnusedWeightUnderTwoNamesDoesNoHarm) {
  for (const bool is_static : {false, true}) {
    auto model = std::make_shared<TwiceNamed>();
    TwiceNamed alone;
    const auto wrapper = wrap(model, {.reducer = {.finds_unused = !is_static, .has_static_graph = is_static}});
    EXPECT_EQ(wrapper->store().size(), 5U);
    for (int step = 0; step < 6; ++step) {
      drop_gradients(*model);
      const batch::Batch batch = batch_of(rank(), step, kWidths);
      at::Tensor loss = models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target()));
      loss.div_(2);
      loss.backward();
      expect_gradients(*model, average_gradients(alone, size(), [&](int r) {
        return loss_of(alone, batch_of(r, step, kWidths)) / 2;
      }));
      EXPECT_FALSE(model->first.grad().defined());
    }
  }
}

// Case 36: first gradients are averaged, higher orders stay this rank's own, which is said once.
TEST_F(GradientsTest, MayHaveAGraphOfTheirOwn) {
  const testing::TemporaryFolder folder;
  log::configure({.rank = rank(), .world_size = size(), .file = folder / "log", .to_console = false});
  auto model = std::make_shared<Scale>(torch::full({3}, 2, at::kDouble));
  const auto wrapper = wrap(model);
  for (int step = 0; step < 6; ++step) {
    drop_gradients(*model);
    const double factor = rank() + 1;
    const at::Tensor output = wrapper->run([&] { return (factor * model->weight.square()).sum(); });
    output.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const at::Tensor gradient = model->weight.grad();
    EXPECT_TRUE(gradient.requires_grad());
    EXPECT_TRUE(at::equal(gradient, torch::full({3}, 4 * (size() + 1) / 2.0, at::kDouble))) << gradient;
    const auto second = torch::autograd::grad({gradient.sum()}, {model->weight});
    EXPECT_TRUE(at::equal(second[0], torch::full({3}, 2 * factor, at::kDouble)));
  }
  log::configure({.rank = rank(), .world_size = size()});
  const std::string text = folder.read("log");
  const std::string warning = "backward was called with create_graph";
  const std::size_t first = text.find(warning);
  EXPECT_EQ(first != std::string::npos, size() > 1);
  if (size() > 1) {
    EXPECT_EQ(text.find(warning, first + 1), std::string::npos);
  }
}

// Case 37: taps are Lockstep's forward hooks.
TEST_F(GradientsTest, FlowThroughTapsAndTensorHooks) {
  const models::ScopedTap tap([](models::Block& block, const models::Tensors& inputs, const models::Forward& next) {
    if (block.path() != "l1") return next(inputs);
    return models::Tensors{at::gelu(next({at::relu(inputs.front())}).front())};
  });
  auto model = std::make_shared<Layers>(kWidths);
  Layers alone(kWidths);
  model->name_blocks();
  alone.name_blocks();
  const auto wrapper = wrap(model);
  for (int step = 0; step < 2; ++step) {
    const auto batch = [step](int r) { return batch_of(r, step, kWidths); };
    drop_gradients(*model);
    const at::Tensor output = wrapper->forward(batch(rank()).input());
    EXPECT_TRUE(at::equal(output, alone.forward(batch(rank()).input())));
    int calls = 0;
    output.register_hook([&calls](const at::Tensor& gradient) {
      ++calls;
      return gradient * 2;
    });
    models::total_loss(model->losses(output, batch(rank()).target())).backward();
    EXPECT_EQ(calls, 1);
    expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return loss_of(alone, batch(r)) * 2; }));
  }
}

// A hook on a parameter sees its own rank's gradient, and what it returns is averaged.
TEST_F(GradientsTest, PassParameterHooksBeforeTheyAreAveraged) {
  auto model = std::make_shared<Scale>(torch::ones({2}));
  const auto wrapper = wrap(model);
  std::vector<double> seen;
  model->weight.register_hook([&seen](const at::Tensor& gradient) {
    seen.push_back(gradient[0].item<double>());
    return gradient * 10;
  });
  for (int step = 0; step < 2; ++step) {
    drop_gradients(*model);
    wrapper->forward(torch::full({2}, rank() + 1, at::kFloat)).sum().backward();
    EXPECT_EQ(seen.back(), rank() + 1);
    EXPECT_TRUE(at::equal(model->weight.grad(), torch::full({2}, 5 * (size() + 1), at::kFloat)));
  }
}

}  // namespace gradients_test
}  // namespace lockstep::parallel
