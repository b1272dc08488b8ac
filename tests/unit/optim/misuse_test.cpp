// SPDX-License-Identifier: BSD-3-Clause
// What optimizers, their wrappers and their groups are refused for, where no other test says it.
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <limits>

#include "make_optimizer.hpp"
#include "optim/groups/param_groups.hpp"
#include "optim/rules/option_limits.hpp"
#include "support/leaf_parameters.hpp"

namespace lockstep::optim {
namespace misuse_test {

struct Misuse {
  const char* sentence;
  std::function<void()> call;
};

template <class Failure>
void expect_refused(const std::vector<Misuse>& rows) {
  for (const Misuse& row : rows) {
    try {
      row.call();
      ADD_FAILURE() << "not refused: " << row.sentence;
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(row.sentence), std::string::npos) << failure.what();
    }
  }
}

class MisuseTest : public ::testing::Test {
 protected:
  OptimWrapper wrap(const OptimWrapper::WrapperOptions& options = {}) {
    return {make_optimizer({}, parameters_), parameters_, options};
  }
  ParamGroup group(const std::vector<std::string>& names) const {
    std::vector<ParameterInfo> infos;
    for (const std::string& name : names) infos.push_back({name, 1});
    return build_groups(section_of({}), find_rule("sgd"), infos).front();
  }

  testing::LeafParameters parameters_{DType::float64, {{"w", {2}}}};
};

// Cases 6.1 and 6.3.
TEST_F(MisuseTest, OfWrappers) {
  OptimWrapperDict all;
  all.add("discriminator", wrap());
  all.add("generator", wrap({.accumulation_steps = 3}));
  expect_refused<ConfigError>({
      {"accumulation_steps must be at least 1, not 0", [this] { wrap({.accumulation_steps = 0}); }},
      {"accumulation_steps must be at least 1, not -2", [this] { wrap({.accumulation_steps = -2}); }},
      {"loss scaling: growth_factor must be greater than 1",
       [this] { wrap({.scaler = GradScalerOptions{.growth_factor = 0.5}}); }},
      {"there is no optimizer named 'critic'; the names are: discriminator, generator", [&all] { all.at("critic"); }},
      {"two optimizers have the name 'generator'", [&] { all.add("generator", wrap()); }},
      {"the optimizer sgd has no option 'beta2'", [&all] { all.values("beta2"); }},
  });
  // All its micro_batches are done: there is no step that another one could belong to.
  all.begin_at(99, 99);
  const Tensor loss = parameters_.leaf(0).sum();
  expect_refused<std::logic_error>({
      {"micro_batch 100 of a training that has 99", [&all] { all.at("generator").micro_batches_in_step(); }},
      {"micro_batch 100 of a training that has 99", [&] { all.at("generator").update_params(loss); }},
  });
  EXPECT_EQ(parameters_.writes, 0);
}

// Cases 3.7.4 and 7.1: groups that are not those of the model.
TEST_F(MisuseTest, OfGroups) {
  const Rule& sgd = find_rule("sgd");
  expect_refused<std::logic_error>({
      {"parameter 'w' is in no group", [&] { Optimizer(sgd, {}, parameters_); }},
      {"parameter 'w' is in two groups",
       [&] {
         Optimizer(sgd, {group({"w"}), group({"w"})}, parameters_);
       }},
      {"there is no parameter named 'v'",
       [&] {
         Optimizer(sgd, {group({"w", "v"})}, parameters_);
       }},
  });
}

// Case 7.10.
TEST_F(MisuseTest, OfTiedParameters) {
  const std::vector<ParameterInfo> tied = {{.name = "embed", .dims = 2},
                                           {.name = "head", .dims = 2, .same_as = "embed"}};
  Section optim = section_of({{"weight_decay", "0.1"}});
  optim.set("paramwise", "bias_lr_mult=2", "a.ini:3");
  expect_refused<ConfigError>(
      {{"optim.paramwise (a.ini:3): 'head' is the same parameter as 'embed'; add bypass_duplicate=true to use the "
        "options of the first name",
        [&] { build_groups(optim, find_rule("sgd"), tied); }}});
}

struct Value {
  const char* rule;
  const char* option;
  double value;
  const char* fault;  // behind the place; empty = nothing is wrong
};

// A schedule may come to anything, and an update must not: case 8.3.1.
TEST(OptionLimitsTest, AreThoseOfTheKeys) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Value> values = {
      {"sgd", "lr", 0, ""},
      {"sgd", "lr", 1e300, ""},
      {"sgd", "lr", -1, "lr would be -1, which is not a number >= 0"},
      {"sgd", "lr", kInfinity, "lr would be inf, which is not a number >= 0"},
      {"sgd", "lr", std::numeric_limits<double>::quiet_NaN(), "lr would be nan, which is not a number >= 0"},
      {"sgd", "weight_decay", -0.1, "weight_decay would be -0.1, which is not a number >= 0"},
      {"sgd", "momentum", 0, ""},
      {"sgd", "momentum", 0.9,
       "momentum would be 0.9, but sgd keeps no momentum_buffer if the configuration sets 0; set a value above 0"},
      {"sgd", "nesterov", 1, "nesterov is true or false, which a schedule cannot change"},
      {"adamw", "maximize", 0, "maximize is true or false, which a schedule cannot change"},
      {"adamw", "amsgrad", 1, "amsgrad is true or false, which a schedule cannot change"},
      {"adamw", "beta1", 0.95, ""},
      {"adamw", "beta1", 1, "beta1 would be 1, which is not a number in [0, 1)"},
      {"adamw", "beta2", -0.5, "beta2 would be -0.5, which is not a number in [0, 1)"},
      {"rmsprop", "alpha", 1.5, "alpha would be 1.5, which is not a number in [0, 1]"},
      {"adafactor", "beta2_decay", -0.5, ""},
  };
  for (const Value& row : values) {
    const Section optim = section_of({{"name", row.rule}});
    const Rule& rule = find_rule(row.rule);
    Options options = build_groups(optim, rule, std::vector<ParameterInfo>{{"w", 2}}).front().options;
    const OptionLimits limits(rule, rule.state_names(options));
    ASSERT_TRUE(options.contains(row.option)) << row.rule << " " << row.option;
    options[row.option] = row.value;
    std::string fault;
    try {
      limits.require(options, {row.option}, "all", 4);
    } catch (const ConfigError& error) {
      fault = error.what();
    }
    const std::string place = "sched.rule: in step 5 of group 'all' ";
    EXPECT_EQ(fault, *row.fault == '\0' ? "" : place + row.fault) << row.rule << " " << row.option;
    EXPECT_NO_THROW(limits.require(options, {}, "all", 4)) << "what no rule moves is as it was configured";
  }
}

// States go by their places: the second one of these is not the second one of those.
TEST(OptionLimitsTest, AStateInAnotherPlaceIsNone) {
  const Rule& rule = find_rule("rmsprop");
  const std::vector<ParameterInfo> one = {{"w", 2}};
  const Options all = build_groups(section_of({{"centered", "true"}, {"momentum", "0.5"}}), rule, one).front().options;
  Options fewer = all;
  fewer["centered"] = 0;
  const OptionLimits limits(rule, rule.state_names(all));
  EXPECT_NO_THROW(limits.require(all, {"momentum"}, "all", 0));
  EXPECT_THROW(limits.require(fewer, {"momentum"}, "all", 0), ConfigError);
  fewer["momentum"] = 0;
  EXPECT_NO_THROW(limits.require(fewer, {"momentum"}, "all", 0));
}

}  // namespace misuse_test
}  // namespace lockstep::optim
