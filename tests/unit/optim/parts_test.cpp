// SPDX-License-Identifier: BSD-3-Clause
// The texts of optim.part, and which parameters they match.
#include "optim/groups/parts.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::optim {
namespace parts_test {

using Numbers = std::map<std::string, std::size_t>;

Section section_with(const std::vector<std::string>& parts) {
  Section optim = Section::with_defaults("optim", optim_keys());
  optim.set("lr", "0.5", "file.ini:1");
  for (const std::string& part : parts) optim.set("part", part, "file.ini:2");
  return optim;
}

std::vector<PartSettings> parts_of(const std::vector<std::string>& parts) {
  return PartSettings::from(section_with(parts));
}

std::vector<ParameterInfo> parameters_of(const std::vector<std::string>& names) {
  std::vector<ParameterInfo> parameters;
  for (const std::string& name : names) parameters.push_back({.name = name});
  return parameters;
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(PartsTest, APartHasTheSettingsOfTheSectionChangedByItsOptions) {
  const auto parts = parts_of({"generator,name=adam,lr=0.1,betas=0.5,0.9", "critic,names=head,block*.norm"});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "generator");
  EXPECT_EQ(parts[0].patterns, std::vector<std::string>{"generator"});
  EXPECT_EQ(parts[0].optim.text("name"), "adam");
  EXPECT_EQ(parts[0].optim.real("lr"), 0.1);
  EXPECT_EQ(parts[0].optim.reals("betas"), (std::vector<double>{0.5, 0.9}));
  EXPECT_EQ(parts[1].patterns, (std::vector<std::string>{"head", "block*.norm"}));
  EXPECT_EQ(parts[1].optim.text("name"), "adamw");
  EXPECT_EQ(parts[1].optim.real("lr"), 0.5);
  EXPECT_TRUE(parts_of({}).empty());
}

TEST(PartsTest, MalformedTextsAreRefused) {
  const auto expect = [](const std::vector<std::string>& parts, const std::string& because) {
    const std::string text = refusal_of([&] { parts_of(parts); });
    EXPECT_NE(text.find(because), std::string::npos) << text;
    EXPECT_NE(text.find("optim.part (file.ini:2)"), std::string::npos) << text;
  };
  expect({"lr=1"}, "'lr=1' is not the name of a part");
  expect({"0"}, "'0' is not the name of a part");
  expect({"a,lr=fast"}, "lr: ");
  expect({"a,lr=1,lr=2"}, "lr is given twice");
  expect({"a,weight=1"}, "key 'weight' is unknown");
  expect({"a,paramwise=b"}, "key 'paramwise' is unknown");
  expect({"a", "a"}, "two parts are named a");
  expect({"a,names=rest", "b,names=rest"}, "two parts have names=rest");
}

TEST(PartsTest, EveryTrainedParameterIsOfOnePart) {
  auto parameters = parameters_of({"body.0.weight", "body.1.weight", "head.bias", "frozen.weight", "tied"});
  parameters[3].is_frozen = true;
  parameters[4].same_as = "head.bias";
  EXPECT_EQ(assign_parts(parts_of({"a,names=body", "b,names=head,tied"}), parameters, ""),
            (Numbers{{"body.0.weight", 0}, {"body.1.weight", 0}, {"head.bias", 1}}));
  EXPECT_EQ(assign_parts(parts_of({"a,names=rest", "b,names=*.1.*"}), parameters, ""),
            (Numbers{{"body.0.weight", 0}, {"body.1.weight", 1}, {"head.bias", 0}}));
  const auto expect = [&](const std::vector<std::string>& parts, const std::string& because) {
    const std::string text = refusal_of([&] { assign_parts(parts_of(parts), parameters, "optim.part"); });
    EXPECT_NE(text.find("optim.part: " + because), std::string::npos) << text;
  };
  expect({"body", "a,names=head"}, "parameter 'tied' belongs to none of the parts (body, a)");
  expect({"body", "a,names=*"}, "parameter 'body.0.weight' belongs to two parts, body and a");
  expect({"a,names=*", "frozen"}, "part frozen has no trained parameter");
  expect({"a,names=body,head", "b,names=tied"}, "'tied' is the same parameter as 'head.bias', but belongs to another");
}

TEST(PartsTest, ChildrenWithoutAPartGetOne) {
  const Section optim = section_with({"a,names=body.0"});
  auto parts = PartSettings::from(optim);
  add_children(parts, optim, {"body", "head"}, parameters_of({"body.0.weight", "head.bias"}));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].name, "head");
  EXPECT_EQ(parts[1].optim.real("lr"), 0.5);
}

}  // namespace parts_test
}  // namespace lockstep::optim
