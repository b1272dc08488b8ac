// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/session.hpp"

namespace lockstep::engine {
namespace check_registry_test {

std::shared_ptr<models::Model> no_model(const Section&, const Task&) { return nullptr; }

/// The message of the refusal; empty = accepted.
std::string refusal(const Registry& registry) {
  try {
    check_registry(registry, {});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::string refusal_of_model(const std::string& name, const KeySpecs& keys) {
  Registry registry;
  registry.models.push_back({.name = name, .help = "", .keys = keys, .make = no_model});
  return refusal(registry);
}

void expect_names(const std::string& message, const std::string& one, const std::string& other) {
  EXPECT_NE(message.find(one), std::string::npos) << message;
  EXPECT_NE(message.find(other), std::string::npos) << message;
}

TEST(CheckRegistryTest, BuiltInRowsAreAccepted) { EXPECT_EQ(refusal(Registry()), ""); }

TEST(CheckRegistryTest, EqualDeclarationsAreAcceptedAndOthersNameBothOwners) {
  Registry registry;
  const KeySpecs of_mlp = registry.models.front().keys;
  EXPECT_EQ(refusal_of_model("mine", of_mlp), "");
  for (const KeySpec& key : {keys::integers("model.hidden", "7", "", 1, 1 << 20), keys::text("model.hidden", "128", ""),
                             keys::integers("model.hidden", "128", "", 2, 1 << 20)}) {
    expect_names(refusal_of_model("mine", {key}), "the built-in model 'mlp'", "this program's model 'mine'");
  }
  expect_names(refusal_of_model("mine", {keys::text("model.name", "mine", "")}), "Lockstep", "'mine'");
}

TEST(CheckRegistryTest, TwoRowsOfAProgramMustAgree) {
  Registry registry;
  registry.models.push_back({"a", "", {keys::integer("model.mine", "1", "")}, no_model});
  registry.models.push_back({"b", "", {keys::integer("model.mine", "2", "")}, no_model});
  expect_names(refusal(registry), "'a'", "'b'");
}

TEST(CheckRegistryTest, KeysNeedTheSectionOfTheTableAndAValidDefault) {
  EXPECT_NE(refusal_of_model("mine", {keys::real("optim.mine", "1", "")}), "");
  EXPECT_NE(refusal_of_model("mine", {keys::integer("width", "1", "")}), "");
  EXPECT_NE(refusal_of_model("mine", {keys::integer("model.mine", "abc", "")}), "");
  KeySpec renamed = keys::integer("model.mine", "1", "");
  renamed.old_names = {"model.hidden"};
  expect_names(refusal_of_model("mine", {renamed}), "mlp", "mine");
}

TEST(CheckRegistryTest, NamesAreUniqueAndNotEmpty) {
  EXPECT_NE(refusal_of_model("", {}), "");
  EXPECT_NE(refusal_of_model("a,b", {}), "");
  expect_names(refusal_of_model("mlp", {}), "a built-in model", "this program's model");
  // A second row with the name of the first one of each table.
  const auto is_refused = [](auto table) {
    Registry registry;
    (registry.*table).push_back((registry.*table).front());
    return refusal(registry).find("have the name '" + (registry.*table).front().name + "'") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(&Registry::sources));
  EXPECT_TRUE(is_refused(&Registry::samplers));
  EXPECT_TRUE(is_refused(&Registry::transforms));
  EXPECT_TRUE(is_refused(&Registry::losses));
  EXPECT_TRUE(is_refused(&Registry::rules));
  EXPECT_TRUE(is_refused(&Registry::averages));
  EXPECT_TRUE(is_refused(&Registry::curves));
  EXPECT_TRUE(is_refused(&Registry::meters));
  EXPECT_TRUE(is_refused(&Registry::steps));
  EXPECT_TRUE(is_refused(&Registry::hooks));
  EXPECT_TRUE(is_refused(&Registry::comm_hooks));
}

TEST(CheckRegistryTest, RowsWithoutFunctionsAreRefused) {
  Registry model, source, hook;
  model.models.push_back({.name = "mine", .help = "", .keys = {}, .make = nullptr});
  source.sources.push_back({.name = "mine", .help = "", .keys = {}});
  hook.hooks.push_back({.name = "mine", .help = "", .keys = {}, .make = nullptr});
  EXPECT_NE(refusal(model).find("model 'mine' has no function"), std::string::npos) << refusal(model);
  EXPECT_NE(refusal(source).find("data source 'mine' has no function"), std::string::npos) << refusal(source);
  EXPECT_NE(refusal(hook).find("hook 'mine' has no function"), std::string::npos) << refusal(hook);
}

TEST(CheckRegistryTest, OptionsOfLockstepKeepTheirMeaning) {
  Registry hook, meter;
  hook.hooks.push_back(hook.hooks.front());
  hook.hooks.back().name = "mine";
  hook.hooks.back().keys = {keys::text("priority", "abc", "")};
  meter.meters.push_back(meter.meters.front());
  meter.meters.back().name = "mine";
  meter.meters.back().keys = {keys::text("prefix", "zz", "")};
  expect_names(refusal(hook), "Lockstep", "hook 'mine'");
  expect_names(refusal(meter), "Lockstep", "meter 'mine'");
}

TEST(CheckRegistryTest, BuiltInModelsWorkUnderAnyName) {
  const Task task{.sample_shape = {3, 64, 64}, .classes = 10};
  for (const char* name :
       {"resnet18", "resnet50", "convnext_tiny", "mobilenet_v2", "mobilenet_v3_small", "vit_tiny_patch16_224"}) {
    Registry registry;
    const auto row = std::find_if(registry.models.begin(), registry.models.end(),
                                  [name](const models::ModelRow& each) { return each.name == name; });
    ASSERT_NE(row, registry.models.end());
    Section section = Section::with_defaults("model", models::model_keys(registry.models));
    const auto count = [&](const std::string& called) {
      section.set("name", called, "test");
      std::int64_t sum = 0;
      for (const at::Tensor& parameter : row->make(section, task)->parameters()) sum += parameter.numel();
      return sum;
    };
    EXPECT_EQ(count(std::string("my_") + name), count(name)) << name;
  }
}

}  // namespace check_registry_test
}  // namespace lockstep::engine
