// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "optim/groups/param_groups.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace paramwise_test {

constexpr Tolerance kTolerance{.absolute = 0, .relative = 1e-15};

/// A setting that is refused here though it is accepted there: a setting without effect.
const std::set<std::string> kRefusedHere = {"unknown_option", "flat_without_wd"};
/// A setting that is refused there and has no counterpart here: optim.lr always has a value.
const std::set<std::string> kAcceptedHere = {"no_lr_with_mult"};

std::string parent_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool is_deformable(const Json& parameter) {
  return parameter.at("module").get<std::string>().find("DeformConv") != std::string::npos;
}

std::vector<optim::ParameterInfo> describe(const Json& model, const std::vector<std::string>& frozen) {
  const std::set<std::string> norms = {"BatchNorm1d", "BatchNorm2d", "SyncBatchNorm",
                                       "GroupNorm",   "LayerNorm",   "InstanceNorm2d"};
  std::set<std::string> deformable;
  for (const Json& parameter : model) {
    if (is_deformable(parameter)) deformable.insert(parent_of(parameter.at("name")));
  }
  std::vector<optim::ParameterInfo> infos;
  for (const Json& parameter : model) {
    require_known_fields(parameter,
                         {"name", "shape", "module", "requires_grad", "in_channels", "groups", "same_tensor_as"});
    const std::string name = parameter.at("name");
    optim::ParameterInfo info{.name = name, .dims = static_cast<std::int64_t>(parameter.at("shape").size())};
    info.is_norm = norms.contains(parameter.at("module"));
    info.is_depthwise = parameter.at("module") == "Conv2d" && parameter.at("in_channels") == parameter.at("groups");
    info.is_offset = deformable.contains(parent_of(parent_of(name))) && !parent_of(name).empty();
    info.same_as = parameter.value("same_tensor_as", "");
    const std::string first = info.same_as.empty() ? name : info.same_as;
    info.is_frozen = std::find(frozen.begin(), frozen.end(), first) != frozen.end();
    infos.push_back(info);
  }
  return infos;
}

std::string options_text(const Json& options) {
  std::string text;
  for (const auto& [key, value] : options.items()) text += "," + key + "=" + value.dump();
  return text;
}

/// The texts of optim.paramwise that say what a paramwise_cfg says.
std::vector<std::string> texts_of(const Json& paramwise) {
  std::vector<std::string> texts;
  if (paramwise.is_null()) return texts;
  for (const auto& [key, value] : paramwise.items()) {
    if (key != "custom_keys") {
      texts.push_back(key + "=" + value.dump());
    } else if (value.is_object()) {
      for (const auto& [name, options] : value.items()) texts.push_back("custom:" + name + options_text(options));
    } else {
      texts.push_back("custom:" + value.dump());
    }
  }
  return texts;
}

Section optim_section(const Json& optimizer, const std::vector<std::string>& paramwise) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  for (const auto& [key, value] : optimizer.items()) {
    if (key != "type") section.set(key, value.dump(), "test");
  }
  section.set("name", optimizer.at("type") == "SGD" ? "sgd" : "adamw", "test");
  for (const std::string& text : paramwise) section.set("paramwise", text, "test");
  return section;
}

void expect_groups(const optim::ParameterGroups& built, const Json& one_case) {
  std::map<std::string, optim::Options> options;
  for (const optim::ParamGroup& group : built.groups) {
    EXPECT_EQ(group.base_lr, group.options.at("lr"));
    for (const std::string& name : group.parameters) {
      EXPECT_TRUE(options.emplace(name, group.options).second) << name << " is in two groups";
    }
  }
  const std::set<std::string> frozen = one_case.at("frozen");
  std::size_t expected = 0;
  for (const Json& group : one_case.at("groups")) {
    require_known_fields(group, {"params", "lr", "weight_decay", "momentum", "lr_mult", "decay_mult"});
    for (const std::string name : group.at("params")) {
      if (frozen.contains(name)) continue;  // it is in no group here, whether or not there are options
      ++expected;
      ASSERT_TRUE(options.contains(name)) << name;
      for (const char* option : {"lr", "weight_decay", "momentum"}) {
        if (!group.contains(option)) continue;
        EXPECT_TRUE(is_close(options[name].at(option), group.at(option), kTolerance))
            << name << " " << option << " " << options[name].at(option);
      }
    }
  }
  EXPECT_EQ(options.size(), expected);
}

/// The remarks on frozen and tied parameters.
void expect_remarks(const optim::ParameterGroups& built, const Json& warnings) {
  std::string all;
  for (const std::string& remark : built.remarks) all += remark + "\n";
  for (const std::string warning : warnings) {
    EXPECT_NE(all.find(warning.substr(0, warning.find(' '))), std::string::npos) << warning << "\n" << all;
  }
}

void run_case(const Json& one_case) {
  require_known_fields(one_case, {"name", "model", "optimizer", "paramwise_cfg", "frozen", "groups", "number_of_groups",
                                  "warnings", "param_groups_seen_by_schedulers", "raises", "text"});
  static const Json models = load("paramwise/paramwise.json").at("models");
  const std::string name = one_case.at("name");
  const auto infos = describe(models.at(one_case.at("model").get<std::string>()), one_case.at("frozen"));
  const Section section = optim_section(one_case.at("optimizer"), texts_of(one_case.at("paramwise_cfg")));
  const optim::Rule& rule = optim::find_rule(section.text("name"));
  const bool is_refused = (one_case.contains("raises") && !kAcceptedHere.contains(name)) || kRefusedHere.contains(name);
  if (is_refused) {
    EXPECT_THROW(optim::ParamGroupBuilder(section, rule).build(infos), ConfigError);
    return;
  }
  const optim::ParameterGroups built = optim::ParamGroupBuilder(section, rule).build(infos);
  if (one_case.contains("raises")) return;
  expect_groups(built, one_case);
  if (!one_case.at("paramwise_cfg").is_null()) expect_remarks(built, one_case.at("warnings"));
}

void run_scaling(const Json& one_case) {
  require_known_fields(one_case, {"world_size", "micro_batch", "auto_scale_lr", "initial_lr", "two_wrappers",
                                  "schedulers", "lr", "raises", "text"});
  Section section = Section::with_defaults("optim", optim::optim_keys());
  const Json& scaling = one_case.at("auto_scale_lr");
  if (!scaling.is_null() && scaling.value("enable", false)) section.set("auto_scale_lr", "true", "test");
  if (!scaling.is_null() && scaling.contains("base_batch_size")) {
    section.set("base_batch_size", scaling.at("base_batch_size").dump(), "test");
  }
  const std::int64_t batch = one_case.at("world_size").get<std::int64_t>() * one_case.at("micro_batch").get<int>();
  const auto scaled = [&] {
    std::vector<optim::ParamGroup> groups;
    for (const double lr : one_case.at("initial_lr")) {
      groups.push_back({.name = {}, .options = {{"lr", lr}}, .base_lr = lr, .parameters = {}});
      groups.back().is_scheduled = one_case.at("schedulers") == "built";
    }
    optim::scale_lr(groups, optim::lr_scale(section, batch, batch));
    return groups;
  };
  if (one_case.contains("raises")) {
    EXPECT_ANY_THROW(scaled());
    return;
  }
  std::vector<Json> expected = {one_case.at("lr")};
  if (one_case.at("two_wrappers")) expected = {one_case.at("lr").at("a"), one_case.at("lr").at("b")};
  for (const Json& rates : expected) {
    const std::vector<optim::ParamGroup> groups = scaled();
    std::vector<double> bases;
    std::vector<double> current;
    for (const optim::ParamGroup& group : groups) {
      bases.push_back(group.base_lr);
      current.push_back(group.options.at("lr"));
    }
    expect_close(bases, rates, kTolerance, "base_lr");
    expect_close(current, rates, kTolerance, "lr");
  }
}

TEST(ParamwiseReference, EveryCaseOfEveryFile) {
  run_topic("paramwise", {{.file = "paramwise.json", .extra_fields = {"models"}, .run = run_case},
                          {.file = "scale_lr.json", .run = run_scaling}});
}

}  // namespace paramwise_test
}  // namespace lockstep::testing::reference
