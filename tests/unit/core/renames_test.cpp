// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "core/text/parameter_names.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace renames_test {

std::string fault_of(const std::string& text) {
  return testing::sentence_of<ConfigError>([&] { parse_renames({text}, "resume.rename"); });
}

TEST(RenamesTest, ReplacePrefixes) {
  const Renames renames = parse_renames({"module.=", "fc=head"}, "");
  EXPECT_EQ(new_name("module.conv.weight", renames), "conv.weight");
  EXPECT_EQ(new_name("fc.bias", renames), "head.bias");
  EXPECT_EQ(new_name("a.module.b", renames), "a.module.b");
}

TEST(RenamesTest, ReplaceEveryMatchOfAPattern) {
  const Renames renames = parse_renames({R"(re:^layers\.([0-9]+)\.=blocks.$1.)", "re:norm=ln", "layers=x"}, "");
  EXPECT_EQ(new_name("layers.12.attention.weight", renames), "blocks.12.attention.weight");
  EXPECT_EQ(new_name("norm1.norm", renames), "ln1.ln");
  EXPECT_EQ(new_name("layers.a.bias", renames), "x.a.bias");  // only the last rule matches
  EXPECT_EQ(new_name("head.bias", renames), "head.bias");
}

TEST(RenamesTest, ApplyOneAfterAnother) {
  const Renames wrappers = parse_renames({R"(re:_fsdp_wrapped_module\.=)", R"(re:_checkpoint_wrapped_module\.=)"}, "");
  EXPECT_EQ(
      new_name("_fsdp_wrapped_module.layer1._fsdp_wrapped_module.0._checkpoint_wrapped_module.conv1.weight", wrappers),
      "layer1.0.conv1.weight");
  EXPECT_EQ(new_name("module.fc.bias", parse_renames({"module.=", "fc=head", "head=classifier"}, "")),
            "classifier.bias");
}

TEST(RenamesTest, WrongRulesAreRejected) {
  EXPECT_EQ(fault_of("=x"), "resume.rename: '=x' does not have the form FROM=TO");
  EXPECT_EQ(fault_of("x"), "resume.rename: 'x' does not have the form FROM=TO");
  EXPECT_EQ(fault_of("re:=x"), "resume.rename: 're:=x' does not have the form FROM=TO");
  EXPECT_TRUE(fault_of("re:[=x").starts_with("resume.rename: 're:[=x' is not a regular expression: "));
}

}  // namespace renames_test
}  // namespace lockstep
