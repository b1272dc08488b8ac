// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "make_optimizer.hpp"

namespace lockstep::optim {
namespace table_test {

std::string error_of(const OptionValues& settings) {
  try {
    const Section optim = section_of(settings);
    find_rule(optim.text("name")).read(optim);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(OptimTableTest, FindsRulesByName) {
  EXPECT_EQ(find_rule("sgd").name, "sgd");
  EXPECT_EQ(find_rule("adamw").name, "adamw");
}

TEST(OptimTableTest, AnUnknownNameListsTheRightOnes) {
  try {
    find_rule("adamaxe");
    ADD_FAILURE() << "adamaxe was found";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("optim.name: 'adamaxe' is unknown; choose one of: sgd, adam, adamw, ")) << message;
    EXPECT_TRUE(message.ends_with("; did you mean 'adamax'?")) << message;
  }
}

TEST(OptimTableTest, DefaultsAreAcceptedByTheirOwnKeys) {
  for (const KeySpec& key : optim_keys()) {
    EXPECT_EQ(fault_in(key, key.default_value), "") << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
  for (const Rule& rule : builtin_rules()) EXPECT_EQ(error_of({{"name", rule.name}}), "");
}

// So a program may take any one row alone.
TEST(OptimTableTest, EveryRuleReadsOnlyItsOwnKeys) {
  for (const Rule& rule : builtin_rules()) {
    Section optim = Section::with_defaults("optim", optim_keys({rule}));
    EXPECT_FALSE(rule.help.empty()) << rule.name;
    EXPECT_NO_THROW(rule.read(optim)) << rule.name;
  }
}

struct Refusal {
  OptionValues settings;
  std::string message;
};

TEST(OptimTableTest, RefusesBadValuesByKeyAndOrigin) {
  const std::vector<Refusal> refusals = {
      {{{"name", "rprop"}, {"etas", "0.5"}},
       "optim.etas (command line) must be two numbers, one in (0, 1) and one above 1, such as 0.5, 1.2"},
      {{{"name", "rprop"}, {"step_sizes", "50, 1e-6"}},
       "optim.step_sizes (command line) must be two numbers, the smaller first, such as 1e-6, 50"},
      {{{"name", "rprop"}, {"weight_decay", "0.1"}},
       "optim.weight_decay (command line) must be 0 for rprop, which uses only the sign of the gradient"},
      {{{"name", "lars"}, {"momentum", "1"}}, "optim.momentum (command line) must be in [0, 1) for lars"},
      {{{"name", "lbfgs"}, {"weight_decay", "0.1"}},
       "optim.weight_decay (command line) cannot be combined with optim.name=lbfgs, which evaluates the loss several "
       "times per step, for all parameters together"},
      {{{"name", "lbfgs"}, {"maximize", "true"}},
       "optim.maximize (command line) cannot be combined with optim.name=lbfgs, which evaluates the loss several times "
       "per step, for all parameters together"},
      {{{"name", "lbfgs"}, {"no_decay", "norms_biases"}},
       "optim.no_decay (command line) cannot be combined with optim.name=lbfgs, which evaluates the loss several times "
       "per step, for all parameters together"},
      {{{"name", "lbfgs"}, {"paramwise", "bias_lr_mult=2"}},
       "optim.paramwise (command line) cannot be combined with optim.name=lbfgs, which evaluates the loss several "
       "times per step, for all parameters together"},
      {{{"name", "lbfgs"}, {"history_size", "0"}},
       "command line: optim.history_size: '0' is not an integer in [1, 10000]"},
      {{{"name", "larc"}, {"momentum", "1.5"}}, "optim.momentum (command line) must be in [0, 1) for larc"},
  };
  for (const Refusal& refusal : refusals) EXPECT_EQ(error_of(refusal.settings), refusal.message);
  for (const char* etas : {"0, 1.2", "1, 1.2", "0.5, 1"}) {
    EXPECT_NE(error_of({{"name", "rprop"}, {"etas", etas}}), "") << etas;
  }
  for (const char* name : {"adam", "adamax", "nadam", "radam", "lion", "lamb"}) {
    EXPECT_NE(error_of({{"name", name}, {"betas", "1,0.9"}}), "") << name;
  }
}

TEST(OptimTableTest, RefusesValuesOutOfRange) {
  const OptionValues below_zero = {{"lr", "-1"},
                                   {"weight_decay", "-1"},
                                   {"momentum", "-0.1"},
                                   {"eps", "-1e-8"},
                                   {"lr_decay", "-1"},
                                   {"initial_accumulator_value", "-1"},
                                   {"alpha", "-0.1"},
                                   {"rho", "-0.1"},
                                   {"betas", "-0.1, 0.9"},
                                   {"lambd", "-1"},
                                   {"t0", "-1"},
                                   {"momentum_decay", "-1"},
                                   {"max_grad_norm", "-1"},
                                   {"trust_coefficient", "-1"},
                                   {"dampening", "-1"}};
  for (const auto& [key, value] : below_zero) {
    const std::string message = error_of({{key, value}});
    EXPECT_NE(message.find("optim." + key), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find("command line"), std::string::npos) << key << ": " << message;
  }
  for (const char* key : {"alpha", "rho", "dampening"}) EXPECT_NE(error_of({{key, "1.5"}}), "") << key;
}

TEST(OptimTableTest, AProgramsRuleBringsItsKeys) {
  std::vector<Rule> rules = builtin_rules();
  Rule mine = find_rule("sgd");
  mine.name = "mine";
  mine.keys.push_back({.name = "optim.extra", .type = KeyType::real, .default_value = "7", .help = "mine"});
  rules.push_back(mine);
  Section optim = Section::with_defaults("optim", optim_keys(rules));
  optim.set("name", "mine", "command line");
  EXPECT_EQ(optim.real("extra"), 7);
  EXPECT_EQ(find_rule("mine", rules).name, "mine");
}

TEST(OptimTableTest, EveryRuleHasWhatItsKindNeeds) {
  for (const Rule& rule : builtin_rules()) {
    const ElementRule* const elements = rule.elements();
    EXPECT_EQ(elements == nullptr, rule.is_whole()) << rule.name;
    if (elements != nullptr) {
      EXPECT_TRUE(elements->coefficients != nullptr && elements->update32 != nullptr && elements->update64 != nullptr);
      EXPECT_EQ(rule.state_shape(), nullptr) << rule.name;
      EXPECT_TRUE(elements->rows != nullptr || elements->fused != nullptr) << rule.name;
    }
    if (const auto* const tensors = std::get_if<TensorRule>(&rule.kind)) {
      EXPECT_TRUE(tensors->needs != nullptr && tensors->measure32 != nullptr && tensors->measure64 != nullptr &&
                  tensors->adapt != nullptr)
          << rule.name;
    }
  }
  EXPECT_NE(find_rule("lbfgs").state_shape(), nullptr);
  for (const Rule& rule : builtin_rules()) EXPECT_TRUE(rule.supports_tensors()) << rule.name;
}

TEST(OptimTableTest, NesterovNeedsMomentumWithoutDampening) {
  const std::string message = "optim.nesterov (command line) requires optim.momentum > 0 and optim.dampening = 0";
  EXPECT_EQ(error_of({{"nesterov", "true"}}), message);
  EXPECT_EQ(error_of({{"nesterov", "true"}, {"momentum", "0.9"}, {"dampening", "0.1"}}), message);
  EXPECT_EQ(error_of({{"nesterov", "true"}, {"momentum", "0.9"}}), "");
}

TEST(OptimTableTest, BetasAreTwoNumbersBelowOne) {
  EXPECT_EQ(error_of({{"name", "adamw"}, {"betas", "0.9"}}),
            "optim.betas (command line) must be two numbers in [0, 1), such as 0.9, 0.999");
  EXPECT_NE(error_of({{"name", "adamw"}, {"betas", "0.9,1"}}), "");
  EXPECT_NE(error_of({{"name", "adamw"}, {"betas", "0.9,0.99,0.999"}}), "");
}

TEST(OptimTableTest, StateArraysFollowFromTheOptions) {
  const auto names = [](const OptionValues& settings) {
    const Section optim = section_of(settings);
    const Rule& rule = find_rule(optim.text("name"));
    return rule.state_names(rule.read(optim));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), Names{});
  EXPECT_EQ(names({{"momentum", "0.9"}}), (Names{"momentum_buffer"}));
  EXPECT_EQ(names({{"name", "adamw"}}), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names({{"name", "adamw"}, {"amsgrad", "true"}}), (Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}));
  EXPECT_EQ(names({{"name", "rmsprop"}}), (Names{"square_avg"}));
  EXPECT_EQ(names({{"name", "rmsprop"}, {"momentum", "0.9"}}), (Names{"square_avg", "momentum_buffer"}));
  EXPECT_EQ(names({{"name", "rmsprop"}, {"momentum", "0.9"}, {"centered", "true"}}),
            (Names{"square_avg", "grad_avg", "momentum_buffer"}));
  EXPECT_EQ(names({{"name", "lars"}}), Names{});
  EXPECT_EQ(names({{"name", "lars"}, {"momentum", "0.9"}}), (Names{"momentum_buffer"}));
}

const std::vector<ParameterInfo> kParameters = {{"conv.weight", 4}, {"conv.bias", 1}, {"fc.weight", 2}, {"scale", 0}};

TEST(OptimGroupsTest, OneGroupHoldsAll) {
  const Section optim = section_of({{"lr", "0.5"}, {"weight_decay", "0.25"}});
  const auto groups = build_groups(optim, find_rule("sgd"), kParameters);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].name, "all");
  EXPECT_EQ(groups[0].base_lr, 0.5);
  EXPECT_EQ(groups[0].options.at("lr"), 0.5);
  EXPECT_EQ(groups[0].options.at("weight_decay"), 0.25);
  EXPECT_EQ(groups[0].parameters, (std::vector<std::string>{"conv.weight", "conv.bias", "fc.weight", "scale"}));
}

TEST(OptimGroupsTest, NormsAndBiasesMayGoWithoutDecay) {
  const Section optim = section_of({{"weight_decay", "0.25"}, {"no_decay", "norms_biases"}});
  const auto groups = build_groups(optim, find_rule("sgd"), kParameters);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "decay");
  EXPECT_EQ(groups[0].options.at("weight_decay"), 0.25);
  EXPECT_EQ(groups[0].parameters, (std::vector<std::string>{"conv.weight", "fc.weight"}));
  EXPECT_EQ(groups[1].name, "no_decay");
  EXPECT_EQ(groups[1].options.at("weight_decay"), 0);
  EXPECT_EQ(groups[1].options.at("lr"), groups[0].options.at("lr"));
  EXPECT_EQ(groups[1].parameters, (std::vector<std::string>{"conv.bias", "scale"}));
}

TEST(OptimGroupsTest, AnEmptyGroupIsLeftOut) {
  const Section optim = section_of({{"weight_decay", "0.25"}, {"no_decay", "norms_biases"}});
  const std::vector<ParameterInfo> matrices = {{"a", 2}, {"b", 2}};
  const auto groups = build_groups(optim, find_rule("sgd"), matrices);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].name, "all");
}

}  // namespace table_test
}  // namespace lockstep::optim
