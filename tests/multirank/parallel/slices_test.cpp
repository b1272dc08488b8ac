// SPDX-License-Identifier: BSD-3-Clause
// Where parameters lie and how gradients travel changes no bit: one copy per rank or per host, gradients averaged whole
// or in slices while they are visited, any backend, a step manually or by train_step.
#include "optim/clip.hpp"
#include "parallel/reducers/bucket_reducer.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/sampling.hpp"
#include "training.hpp"

namespace lockstep::parallel {
namespace slices_test {

using SlicesTest = ParallelTest;

bool is_sliced(DistributedDataParallel& wrapper) {
  const auto* const slices = ability_of<SlicedReducer>(wrapper.reducer());
  return slices != nullptr && slices->is_sliced();
}

const std::vector<std::int64_t> kWidths = {20, 300, 40, 3};

/// Parameters of less than a piece and of several pieces, some in float32 and some in float64; the last layer serves
/// odd steps only.
class Wide : public Layers {
 public:
  Wide() : Layers(kWidths) {
    layers[0]->to(at::kFloat);
    layers[1]->to(at::kFloat);
    scale = register_parameter("scale", torch::full({}, 0.5, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor hidden = at::tanh(run(0, input.to(at::kFloat)));
    const at::Tensor wide = at::tanh(run(1, hidden)).to(at::kDouble) * scale;
    return uses_last ? run(2, wide) : wide.slice(1, 0, 3);
  }

  at::Tensor scale;
  bool uses_last = true;
};

struct Recipe {
  DdpSettings optim;
  optim::OptimWrapper::WrapperOptions options;
  bool finds_unused = false;
};

enum class Form { by_hand, by_train_step };

const std::vector<Recipe>& recipes() {
  static const DdpSettings sgd = {{"name", "sgd"}, {"lr", "0.001"}, {"momentum", "0.75"}, {"weight_decay", "0.01"}};
  static const DdpSettings adam = {{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}};
  static const DdpSettings lars = {{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.75"}, {"weight_decay", "0.01"}};
  static const DdpSettings lamb = {{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}};
  static const DdpSettings muon = {{"name", "muon"}, {"lr", "0.01"}, {"momentum", "0.95"}, {"weight_decay", "0.1"}};
  static const DdpSettings adafactor = {{"name", "adafactor"}, {"lr", "0.01"}};
  static const std::vector<Recipe> all = {
      {sgd, {}},
      {adam, {}},
      {sgd, {.accumulation_steps = 1, .clip = {.max_norm = 0.125}}},
      {adam, {.accumulation_steps = 3, .clip = {.max_norm = 0.125}}},
      {adam, {.accumulation_steps = 2, .clip = {.max_norm = 0.125, .norm_type = 1, .max_value = 0.001}}, true},
      {lars, {}},
      {lamb, {.accumulation_steps = 2, .clip = {.max_value = 0.001}}, true},
      {muon, {}},
      {adafactor, {.accumulation_steps = 2}, true},
  };
  return all;
}

/// Trains 6 micro_batches and returns the parameters and the last norm.
std::vector<at::Tensor> train(DistributedDataParallel& wrapper, Wide& model, const Recipe& recipe, Form form,
                              int rank) {
  auto optimizer = make_optimizer(wrapper.parameters(), recipe.optim, recipe.options);
  const std::int64_t parts = recipe.options.accumulation_steps;
  double norm = 0;
  for (int i = 0; i < 6; ++i) {
    const batch::Batch batch = batch_of(rank, i, kWidths, 2, at::kFloat);
    model.uses_last = !recipe.finds_unused || i % 4 < 2;
    if (form == Form::by_train_step) {
      norm = wrapper.train_step(batch, optimizer).update.grad_norm.value_or(norm);
      continue;
    }
    std::optional<DistributedDataParallel::NoSync> only_here;
    if ((i + 1) % parts != 0) only_here.emplace(wrapper);
    const at::Tensor loss = models::total_loss(model.losses(wrapper.forward(batch.input()), batch.target()));
    (loss / static_cast<double>(parts)).backward();
    if (only_here) continue;
    wrapper.parameters().finish_gradients();
    const optim::Clip& clip = recipe.options.clip;
    if (clip.max_norm > 0) norm = optim::gradient_norm(wrapper.parameters(), clip.norm_type);
    optimizer.optimizer().step(optim::change_by(clip, norm));
    wrapper.parameters().drop_gradients();
  }
  std::vector<at::Tensor> result;
  wrapper.store().read_whole([&] { result = values_of(model); });
  result.push_back(torch::full({}, norm, at::kDouble));
  return result;
}

TEST_F(SlicesTest, GiveTheBitsOfWholeGradients) {
  std::vector<std::unique_ptr<mpi::Collectives>> backends;
  backends.push_back(make_collectives());
  if (size() > 1) backends.push_back(make_collectives("mpi"));
  if (size() == 4) backends.push_back(mpi::make_collectives(world_, {.timeout_s = 60, .hosts = 2}));
  for (std::size_t r = 0; r < recipes().size(); ++r) {
    SCOPED_TRACE("recipe " + std::to_string(r));
    const Recipe& recipe = recipes()[r];
    std::vector<at::Tensor> expected;
    for (const auto& backend : backends) {
      for (const bool shares : {false, true}) {
        for (const Form form : {Form::by_hand, Form::by_train_step}) {
          SCOPED_TRACE(std::string(backend->name()) + (shares ? ", shared" : ", private") +
                       (form == Form::by_hand ? ", by hand" : ", by train_step"));
          auto model = std::make_shared<Wide>();
          DistributedDataParallel wrapper(model, world_, *backend,
                                          {.reducer = {.limits = {.bucket_bytes = {9000}, .last_bucket_bytes = 1000},
                                                       .finds_unused = recipe.finds_unused},
                                           .shares_parameters = shares,
                                           .hosts = backend->name() == "hierarchical" ? 2 : 0});
          EXPECT_EQ(wrapper.store().is_shared(), shares && size() > 1);
          const std::vector<at::Tensor> values = train(wrapper, *model, recipe, form, rank());
          if (expected.empty()) expected = values;
          expect_equal(values, expected);
        }
      }
    }
    for (const at::Tensor& value : expected) {
      EXPECT_TRUE(is_same_everywhere(value));
      EXPECT_TRUE(at::isfinite(value).all().item<bool>());
    }
    EXPECT_FALSE(at::equal(expected[0], Wide().parameters()[0]));
  }
}

// State that is divided among ranks changes no bit either; only where micro_batches add up after the reduction, not
// before, sums are rounded in another order.
TEST_F(SlicesTest, ShardedStagesGiveTheValuesOfWholeReplicas) {
  std::vector<std::unique_ptr<mpi::Collectives>> backends;
  backends.push_back(make_collectives());
  if (size() > 1) backends.push_back(make_collectives("mpi"));
  for (std::size_t r = 0; r < recipes().size(); ++r) {
    const Recipe& recipe = recipes()[r];
    const bool owns_whole = optim::find_rule(recipe.optim.at("name")).is_whole();
    const auto options = [&](Sharding sharding) {
      sharding.owns_whole_parameters = owns_whole;
      return DdpOptions{.reducer = {.limits = {.bucket_bytes = {9000}, .last_bucket_bytes = 1000},
                                    .finds_unused = recipe.finds_unused},
                        .sharding = sharding};
    };
    auto whole = std::make_shared<Wide>();
    DistributedDataParallel replicas(whole, world_, *collectives_, options({}));
    const std::vector<at::Tensor> expected = train(replicas, *whole, recipe, Form::by_train_step, rank());
    for (const auto& backend : backends) {
      for (const Sharding& sharding : std::vector<Sharding>{{.stage = 1},
                                                            {.stage = 2},
                                                            {.stage = 3, .blocks = {"l*"}},
                                                            {.stage = 3, .blocks = {"l1"}, .prefetches = false}}) {
        for (const Form form : {Form::by_hand, Form::by_train_step}) {
          SCOPED_TRACE("recipe " + std::to_string(r) + ", stage " + std::to_string(sharding.stage) + ", " +
                       std::string(backend->name()) + (form == Form::by_hand ? ", by hand" : ", by train_step"));
          auto model = std::make_shared<Wide>();
          DistributedDataParallel wrapper(model, world_, *backend, options(sharding));
          // Adam makes much of what is left of gradients that nearly cancel.
          const bool adds_late = sharding.stage > 1 && recipe.options.accumulation_steps > 1;
          const double tolerance = adds_late ? 1e-3 : sharding.stage == 3 ? 1e-12 : 0;
          expect_equal(train(wrapper, *model, recipe, form, rank()), expected, tolerance);
        }
      }
    }
  }
}

// A copy of the state on every host changes as little: sums over ranks are rounded in another order where hosts have
// several, and stage 1 reduces gradients as replicas do.
TEST_F(SlicesTest, CopiesOnHostsGiveTheValuesOfWholeReplicas) {
  std::uint64_t number = 0;
  for (int hosts = 2; hosts <= size(); ++hosts) {
    if (size() % hosts != 0) continue;
    const auto by_hosts = mpi::make_collectives(world_, {.timeout_s = 60, .hosts = hosts});
    for (std::size_t r = 0; r < recipes().size(); ++r) {
      const Recipe& recipe = recipes()[r];
      if (!testing::is_sampled(++number, 2)) continue;
      const auto trained = [&](mpi::Collectives& backend, const Sharding& sharding) {
        DdpOptions options{.reducer = {.limits = {.bucket_bytes = {9000}, .last_bucket_bytes = 1000},
                                       .finds_unused = recipe.finds_unused},
                           .hosts = hosts,
                           .sharding = sharding};
        options.sharding.owns_whole_parameters = optim::find_rule(recipe.optim.at("name")).is_whole();
        auto model = std::make_shared<Wide>();
        DistributedDataParallel wrapper(model, world_, backend, options);
        EXPECT_EQ(wrapper.store().copies(), sharding.is_within_hosts ? hosts : 1);
        return train(wrapper, *model, recipe, Form::by_train_step, rank());
      };
      const std::vector<at::Tensor> expected = trained(*collectives_, {});
      for (mpi::Collectives* const backend : {collectives_.get(), by_hosts.get()}) {
        for (int stage = 1; stage <= 3; ++stage) {
          SCOPED_TRACE("recipe " + std::to_string(r) + ", stage " + std::to_string(stage) + ", " +
                       std::to_string(hosts) + " hosts, " + std::string(backend->name()));
          const std::vector<at::Tensor> values =
              trained(*backend, {.stage = stage, .blocks = {"l*"}, .is_within_hosts = true});
          const bool adds_otherwise = stage > 1 && (recipe.options.accumulation_steps > 1 || hosts < size());
          expect_equal(values, expected, adds_otherwise ? 1e-3 : stage == 3 ? 1e-12 : 0);
          for (const at::Tensor& value : values) EXPECT_TRUE(is_same_everywhere(value));
        }
      }
    }
  }
}

// Which rank has what changes no bit of a rule that works element by element.
TEST_F(SlicesTest, OwnersOfWholeParametersGiveTheValuesOfSlices) {
  for (int stage = 1; stage <= 3; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    std::vector<std::vector<at::Tensor>> values;
    for (const bool owns_whole : {false, true}) {
      auto model = std::make_shared<Wide>();
      DistributedDataParallel wrapper(model, world_, *collectives_,
                                      {.sharding = {.stage = stage, .owns_whole_parameters = owns_whole}});
      values.push_back(train(wrapper, *model, recipes()[1], Form::by_train_step, rank()));
    }
    expect_equal(values[1], values[0]);
  }
}

// Rounded, summed and rounded again as the hook of ddp does it.
TEST_F(SlicesTest, CompressedGradientsOfStagesHaveTheValuesOfTheHook) {
  std::vector<std::unique_ptr<mpi::Collectives>> backends;
  backends.push_back(make_collectives());
  if (size() > 1) backends.push_back(make_collectives("mpi"));
  const Recipe& adam = recipes()[1];
  for (const char* hook : {"fp16", "bf16"}) {
    Section ddp = Section::with_defaults("ddp", ddp_keys());
    ddp.set("comm_hook", hook, "test");
    ddp.set("shared_parameters", "false", "test");
    for (const auto& backend : backends) {
      const auto trained = [&](const Sharding& sharding, bool is_compressed) {
        auto model = std::make_shared<Wide>();
        DdpOptions options = DdpOptions::from(ddp, *backend);
        if (!is_compressed) options.comm_hook = {};
        options.reducer.limits = {.bucket_bytes = {9000}, .last_bucket_bytes = 1000};
        options.sharding = sharding;
        DistributedDataParallel wrapper(model, world_, *backend, options);
        return train(wrapper, *model, adam, Form::by_train_step, rank());
      };
      const std::vector<at::Tensor> expected = trained({}, true);
      EXPECT_EQ(at::equal(expected[0], trained({}, false)[0]), size() == 1);
      for (int stage = 1; stage <= 3; ++stage) {
        for (const bool owns_whole : {false, true}) {
          SCOPED_TRACE(std::string(hook) + ", " + std::string(backend->name()) + ", stage " + std::to_string(stage) +
                       (owns_whole ? ", owners" : ""));
          // Forward computes on other memory in stage 3: a last bit of a gradient may decide how it is rounded.
          expect_equal(trained({.stage = stage, .owns_whole_parameters = owns_whole}, true), expected,
                       stage == 3 ? 1e-3 : 0);
        }
      }
    }
  }
}

TEST_F(SlicesTest, OtherHooksNeedWholeBuckets) {
  for (const CommHookRow& row : builtin_comm_hooks()) {
    for (int stage = 1; stage <= 3; ++stage) {
      Section ddp = Section::with_defaults("ddp", ddp_keys());
      ddp.set("comm_hook", row.name, "test");
      ddp.set("powersgd_start_step", "2", "test");
      ddp.set("shared_parameters", "false", "test");
      DdpOptions options = DdpOptions::from(ddp, *collectives_);
      options.sharding.stage = stage;
      const std::string text = error_of<ConfigError>(
          [&] { DistributedDataParallel(std::make_shared<Wide>(), world_, *collectives_, options); });
      const bool is_refused = stage > 1 && row.name != "fp16" && row.name != "bf16";
      EXPECT_EQ(text.find("needs whole buckets") != std::string::npos, is_refused) << row.name << ": " << text;
    }
  }
}

TEST_F(SlicesTest, WholeRulesRefuseDividedParameters) {
  DistributedDataParallel wrapper(std::make_shared<Wide>(), world_, *collectives_, {.sharding = {.stage = 1}});
  const std::string text = error_of<ConfigError>([&] { make_optimizer(wrapper.parameters(), {{"name", "muon"}}); });
  EXPECT_NE(text.find("Sharding::owns_whole_parameters"), std::string::npos) << text;
}

// Hooks and sparse gradients need the whole; the mode is chosen step by step.
TEST_F(SlicesTest, AreTakenOnlyWhereTheyCanBe) {
  if (collectives_->local_size() == 1) GTEST_SKIP() << "needs several ranks that share memory";
  for (const bool has_hook : {false, true}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 2});
    const auto wrapper = wrap(model, {.shares_parameters = true});
    if (has_hook) set_comm_hook(wrapper->reducer(), all_reduce_hook(*collectives_));
    EXPECT_EQ(ability_of<SlicedReducer>(wrapper->reducer())->supports_slices(), !has_hook);
    auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}});
    wrapper->train_step(batch_of(rank(), 0, {3, 2}), optimizer);
    EXPECT_FALSE(model->layers[0]->weight.grad().defined());
    // A user can read `.grad`.
    wrapper->forward(batch_of(rank(), 1, {3, 2}).input()).sum().backward();
    EXPECT_FALSE(is_sliced(*wrapper));
    EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
  }
}

// Nobody visits the slices of a step that is not taken.
TEST_F(SlicesTest, EndWithAStepWithANormThatIsNotFinite) {
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 2});
    const auto wrapper = wrap(model, {.shares_parameters = shares});
    auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}}, {.clip = {.max_norm = 1}});
    const std::vector<at::Tensor> before = values_of(*model);
    batch::Batch batch = batch_of(rank(), 0, {3, 2});
    if (is_last()) batch.set_input(batch.input() / 0.0);
    const StepResult result = wrapper->train_step(batch, optimizer);
    EXPECT_FALSE(result.update.is_finite);
    EXPECT_FALSE(is_sliced(*wrapper));
    expect_gradients(*model, std::vector<at::Tensor>(2));
    expect_equal(values_of(*model), before);
    EXPECT_TRUE(wrapper->train_step(batch_of(rank(), 1, {3, 2}), optimizer).update.updated);
    EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight));
  }
}

}  // namespace slices_test
}  // namespace lockstep::parallel
