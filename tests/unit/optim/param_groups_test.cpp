// SPDX-License-Identifier: BSD-3-Clause
#include "optim/groups/param_groups.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <map>

#include "make_optimizer.hpp"

namespace lockstep::optim {
namespace param_groups_test {

using Names = std::vector<std::string>;

/// Two numbered blocks between an embedding and a head.
std::vector<ParameterInfo> small_model() {
  return {{.name = "embed.weight", .dims = 2, .layers_after = 3},
          {.name = "block0.norm.weight", .dims = 1, .is_norm = true, .layers_after = 2},
          {.name = "block0.linear.weight", .dims = 2, .layers_after = 2},
          {.name = "block0.linear.bias", .dims = 1, .layers_after = 2},
          {.name = "block1.norm.weight", .dims = 1, .is_norm = true, .layers_after = 1},
          {.name = "block1.linear.weight", .dims = 2, .layers_after = 1},
          {.name = "block1.linear.bias", .dims = 1, .layers_after = 1},
          {.name = "head.weight", .dims = 2, .layers_after = 0}};
}

Section with_texts(const Names& texts, const OptionValues& more = {}) {
  Section optim = section_of({{"lr", "0.5"}, {"weight_decay", "0.25"}, {"momentum", "0.5"}});
  for (const auto& [key, value] : more) optim.set(key, value, "command line");
  for (const std::string& text : texts) optim.set("paramwise", text, "command line");
  return optim;
}

ParameterGroups build(const Names& texts, const OptionValues& more = {},
                      const std::vector<ParameterInfo>& model = small_model()) {
  const Section optim = with_texts(texts, more);
  return ParamGroupBuilder(optim, find_rule(optim.text("name"))).build(model);
}

std::string error_of(const Names& texts, const OptionValues& more = {}) {
  try {
    build(texts, more);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Names names_of(const ParameterGroups& built) {
  Names names;
  for (const ParamGroup& group : built.groups) names.push_back(group.name);
  return names;
}

Options options_of(const ParameterGroups& built, const std::string& parameter) {
  for (const ParamGroup& group : built.groups) {
    if (std::find(group.parameters.begin(), group.parameters.end(), parameter) != group.parameters.end()) {
      return group.options;
    }
  }
  return {};
}

TEST(ParamGroupsTest, GroupsDoNotDependOnHowTheyWereWritten) {
  const Names kinds = {"norm_decay_mult=0,bias_decay_mult=0"};
  const Names each = {"custom:norm,decay_mult=0", "custom:bias,weight_decay=0"};
  const Names pattern = {"re:.*\\.(norm\\.weight|bias),decay_mult=0"};
  const ParameterGroups expected = build({}, {{"no_decay", "norms_biases"}});
  EXPECT_EQ(names_of(expected), (Names{"decay", "no_decay"}));
  for (const Names& texts : {kinds, each, pattern}) {
    const ParameterGroups built = build(texts);
    EXPECT_EQ(names_of(built), names_of(expected)) << texts.front();
    for (std::size_t i = 0; i < expected.groups.size(); ++i) {
      EXPECT_EQ(built.groups[i].parameters, expected.groups[i].parameters) << texts.front();
      EXPECT_EQ(built.groups[i].options, expected.groups[i].options) << texts.front();
    }
  }
}

// A model says so of parameters of any shape. Without optim.no_decay they are decayed, as flat ones are.
TEST(ParamGroupsTest, NoDecaySparesWhatTheModelNames) {
  const std::vector<ParameterInfo> model = {{.name = "positions", .dims = 3, .is_undecayed = true},
                                            {.name = "head.weight", .dims = 2},
                                            {.name = "head.bias", .dims = 1}};
  const ParameterGroups built = build({}, {{"no_decay", "norms_biases"}}, model);
  EXPECT_EQ(names_of(built), (Names{"decay", "no_decay"}));
  EXPECT_EQ(built.groups[0].parameters, Names{"head.weight"});
  EXPECT_EQ(built.groups[1].parameters, (Names{"positions", "head.bias"}));
  EXPECT_EQ(options_of(built, "positions").at("weight_decay"), 0);
  EXPECT_EQ(names_of(build({}, {}, model)), Names{"all"});
  const ParameterGroups named = build({"custom:positions,decay_mult=2"}, {{"no_decay", "norms_biases"}}, model);
  EXPECT_EQ(options_of(named, "positions").at("weight_decay"), 0.5);
}

// The formula that all have in common comes first, and is called by what the others are.
TEST(ParamGroupsTest, NamesDistinguish) {
  EXPECT_EQ(names_of(build({})), Names{"all"});
  EXPECT_EQ(names_of(build({"custom:embed,lr_mult=0.1"})), (Names{"rest", "lr*0.1"}));
  EXPECT_EQ(names_of(build({"custom:embed,lr=1,decay_mult=0"})), (Names{"decay", "lr*2+no_decay"}));
  EXPECT_EQ(names_of(build({"custom:embed,momentum=0.75", "bias_decay_mult=0.5"})),
            (Names{"decay", "momentum=0.75", "decay*0.5"}));
  EXPECT_EQ(names_of(build({"custom:e,lr_mult=0.1"})), Names{"all"});  // every name holds one
  EXPECT_EQ(names_of(build({"custom:embed,lr_mult=1"})), Names{"all"});
  EXPECT_EQ(names_of(build({"custom:embed,lr_mult=0.3333333", "custom:head,lr_mult=0.3333334"})),
            (Names{"rest", "lr*0.3333333", "lr*0.3333334"}));
}

TEST(ParamGroupsTest, AGroupMayHaveANameOfItsOwn) {
  const ParameterGroups built = build({"custom:embed,group=input", "bias_decay_mult=0"});
  EXPECT_EQ(names_of(built), (Names{"input", "decay", "no_decay"}));
  EXPECT_EQ(built.groups[0].options, built.groups[1].options);
  EXPECT_EQ(error_of({"custom:embed,lr_mult=2,group=rest"}),
            "optim.paramwise (command line): two groups have the name 'rest'; rename one of them");
}

TEST(ParamGroupsTest, APatternComesFirstAndMatchesTheWholeName) {
  const ParameterGroups built = build(
      {"custom:block0.linear,lr_mult=2", "re:block[0-9]{1,2}\\.linear\\.weight,lr_mult=4", "re:linear,lr_mult=8"});
  EXPECT_EQ(options_of(built, "block0.linear.weight").at("lr"), 2);
  EXPECT_EQ(options_of(built, "block0.linear.bias").at("lr"), 1);
  EXPECT_EQ(options_of(built, "block1.linear.bias").at("lr"), 0.5);
  EXPECT_EQ(built.remarks, Names{"optim.paramwise (command line): 're:linear' matches no parameter"});
}

// The head keeps its lr, the block before it gets half of it, and so on.
TEST(ParamGroupsTest, LayerDecayMultipliesWhateverElseHolds) {
  const ParameterGroups built = build({"layer_decay=0.5", "custom:block1.norm,lr_mult=4,decay_mult=0"});
  EXPECT_EQ(built.groups.front().parameters, Names{"head.weight"});
  EXPECT_EQ(options_of(built, "head.weight").at("lr"), 0.5);
  EXPECT_EQ(options_of(built, "block1.linear.weight").at("lr"), 0.25);
  EXPECT_EQ(options_of(built, "block1.norm.weight").at("lr"), 1);
  EXPECT_EQ(options_of(built, "block0.linear.weight").at("lr"), 0.125);
  EXPECT_EQ(options_of(built, "embed.weight").at("lr"), 0.0625);
  EXPECT_EQ(names_of(build({"layer_decay=0.5", "custom:block,group=body"})),
            (Names{"rest", "lr*0.125", "body+lr*0.25", "body+lr*0.5"}));
}

TEST(ParamGroupsTest, OptionsOfTheOptimizerAreCheckedAsItsKeysAre) {
  const OptionValues adamw = {{"name", "adamw"}};
  const ParameterGroups built = build({"custom:embed,betas=0.5,0.75"}, adamw);
  EXPECT_EQ(options_of(built, "embed.weight").at("beta1"), 0.5);
  EXPECT_EQ(options_of(built, "head.weight").at("beta1"), 0.9);
  EXPECT_EQ(names_of(built), (Names{"rest", "beta1=0.5+beta2=0.75"}));
  const std::string place = "optim.paramwise (command line): ";
  EXPECT_EQ(error_of({"custom:embed,betas=0.5"}, adamw),
            "optim.betas (" + place + "'custom:embed,betas=0.5') must be two numbers in [0, 1), such as 0.9, 0.999");
  EXPECT_EQ(error_of({"custom:embed,lr=-1"}), place + "'custom:embed,lr=-1': lr: '-1' is not a number >= 0");
}

TEST(ParamGroupsTest, WhatIsFrozenIsInNoGroup) {
  std::vector<ParameterInfo> model = small_model();
  model[0].is_frozen = true;
  EXPECT_EQ(build({}, {}, model).groups.front().parameters.size(), model.size() - 1);
  EXPECT_EQ(build({}, {}, model).remarks, Names{});
  EXPECT_EQ(build({"bias_lr_mult=2"}, {}, model).remarks, Names{"1 frozen parameter is in no group: embed.weight"});
}

TEST(ParamGroupsTest, ATiedParameterGoesByItsFirstName) {
  std::vector<ParameterInfo> model = small_model();
  model.back().same_as = "embed.weight";
  EXPECT_EQ(build({}, {}, model).groups.front().parameters.size(), model.size() - 1);
  EXPECT_THROW(build({"custom:head,lr_mult=2"}, {}, model), ConfigError);
  const ParameterGroups built = build({"custom:head,lr_mult=2", "bypass_duplicate=true"}, {}, model);
  EXPECT_EQ(names_of(built), Names{"all"});
  EXPECT_EQ(built.remarks, Names{"'head.weight' is the same parameter as 'embed.weight', and has its options"});
}

struct Refusal {
  std::string text;
  std::string message;  // behind the place
};

TEST(ParamGroupsTest, ASentenceForWhatIsWrong) {
  const std::vector<Refusal> refusals = {
      {"bias_lr_mul=2", "key 'bias_lr_mul' is unknown; did you mean 'bias_lr_mult'?"},
      {"no_such_mult=2", "key 'no_such_mult' is unknown"},
      {"bias_lr_mult=-1", "bias_lr_mult: '-1' is not a number >= 0"},
      {"layer_decay=1.5", "layer_decay: '1.5' is not a number in (0, 1]"},
      {"bias_lr_mult=1,bias_lr_mult=2", "bias_lr_mult is given twice"},
      {"backbone", "'backbone' does not have the form key=value"},
      {"custom:embed", "give options, such as custom:embed,lr_mult=0.1"},
      {"custom:,lr_mult=2", "the name after the colon is missing"},
      {"custom:embed,momentun=1", "key 'momentun' is unknown; did you mean 'momentum'?"},
      {"custom:embed,lr=1,lr_mult=2", "lr and lr_mult cannot be combined"},
      {"custom:embed,lr_mult=2,block", "lr_mult: '2,block' is not a number >= 0"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(error_of({refusal.text}), "optim.paramwise (command line): '" + refusal.text + "': " + refusal.message);
  }
  EXPECT_NE(error_of({"re:[,lr_mult=2"}).find("'[' is not a regular expression"), std::string::npos);
  EXPECT_EQ(error_of({"custom:embed,lr_mult=2", "custom:embed,decay_mult=2"}),
            "optim.paramwise (command line): 'custom:embed' is given twice");
  EXPECT_EQ(error_of({"flat_decay_mult=1"}, {{"no_decay", "norms_biases"}}),
            "optim.paramwise (command line): flat_decay_mult cannot be combined with optim.no_decay=norms_biases, "
            "which sets the same multiplier");
}

TEST(ParamGroupsTest, AFactorOnWeightDecayNeedsSome) {
  const auto error_without_decay = [](const std::string& text, const OptionValues& settings) -> std::string {
    try {
      Section optim = section_of(settings);
      optim.set("paramwise", text, "command line");
      ParamGroupBuilder(optim, find_rule("sgd")).build(small_model());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::string text :
       {"norm_decay_mult=0", "bias_decay_mult=0", "dwconv_decay_mult=0", "flat_decay_mult=0"}) {
    EXPECT_EQ(error_without_decay(text, {}), "optim.paramwise (command line): '" + text +
                                                 "': " + text.substr(0, text.find('=')) + " needs optim.weight_decay");
    EXPECT_EQ(error_without_decay(text, {{"weight_decay", "0"}}), "");  // said on purpose
  }
  EXPECT_NE(error_without_decay("custom:embed,decay_mult=0", {}), "");
  EXPECT_EQ(error_without_decay("custom:embed,lr_mult=0", {}), "");
}

struct Scaling {
  std::int64_t world_size;
  std::int64_t micro_batch;         // samples of a forward of one rank
  std::int64_t accumulation_steps;  // forwards of a rank in a step
  std::string includes_accumulation;
  double lr;  // expected rate, where 0.5 is meant for 16 samples
};

TEST(ScaleLrTest, FollowsTheEffectiveBatch) {
  const std::vector<Scaling> rows = {{1, 8, 1, "true", 0.25},  {2, 8, 1, "true", 0.5},  {4, 8, 1, "true", 1},
                                     {1, 8, 4, "true", 1},     {2, 8, 4, "true", 2},    {4, 8, 4, "true", 4},
                                     {1, 8, 4, "false", 0.25}, {2, 8, 4, "false", 0.5}, {4, 8, 4, "false", 1}};
  for (const Scaling& row : rows) {
    const Section optim = with_texts(
        {"custom:embed,lr_mult=0.5"},
        {{"auto_scale_lr", "true"}, {"base_batch_size", "16"}, {"include_accumulation", row.includes_accumulation}});
    std::vector<ParamGroup> groups = build_groups(optim, find_rule("sgd"), small_model());
    const std::int64_t per_forward = row.world_size * row.micro_batch;
    scale_lr(groups, lr_scale(optim, per_forward * row.accumulation_steps, per_forward));
    EXPECT_EQ(groups[0].base_lr, row.lr) << row.world_size << " x " << row.accumulation_steps;
    EXPECT_EQ(groups[0].options.at("lr"), row.lr);
    EXPECT_EQ(groups[1].base_lr, row.lr / 2);
    EXPECT_EQ(groups[1].name, "lr*0.5");
  }
}

TEST(ScaleLrTest, MayFollowTheSquareRootOfTheBatch) {
  const Section optim = with_texts({}, {{"auto_scale_lr", "true"}, {"base_batch_size", "16"}, {"lr_scaling", "sqrt"}});
  EXPECT_EQ(lr_scale(optim, 64, 64).factor(), 2);
  EXPECT_EQ(lr_scale(optim, 4, 4).factor(), 0.5);
  EXPECT_EQ(lr_scale(with_texts({}, {{"lr_scaling", "sqrt"}}), 64, 64).factor(), 1);
}

TEST(ScaleLrTest, ItIsOffUnlessAskedForAndNeedsItsBase) {
  EXPECT_EQ(lr_scale(with_texts({}, {{"base_batch_size", "16"}}), 64, 64).factor(), 1);
  try {
    lr_scale(with_texts({}, {{"auto_scale_lr", "true"}}), 64, 64);
    ADD_FAILURE() << "no base";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "optim.auto_scale_lr (command line) requires optim.base_batch_size, the batch size for which optim.lr "
              "was chosen");
  }
}

TEST(ScaleLrTest, AScheduleThatHasBegunKeepsItsRates) {
  const Section optim = with_texts({}, {{"auto_scale_lr", "true"}, {"base_batch_size", "16"}});
  std::vector<ParamGroup> groups = build_groups(optim, find_rule("sgd"), small_model());
  groups[0].is_scheduled = true;
  EXPECT_THROW(scale_lr(groups, lr_scale(optim, 32, 32)), std::logic_error);
  EXPECT_EQ(groups[0].base_lr, 0.5);
}

}  // namespace param_groups_test
}  // namespace lockstep::optim
