// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/better.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep {
namespace better_test {

// strategy.md 11.9, but for names that say both.
TEST(BetterTest, ANameStatesWhatIsBetter) {
  for (const char* const name : {"acc", "val/accuracy", "mAP_50", "AUC", "AR@100", "mIoU", "top5", "precision"}) {
    EXPECT_EQ(better_by_name(name), Better::higher) << name;
  }
  for (const char* const name : {"loss", "ce_loss", "val/loss", "Perplexity", "word_error", "mse"}) {
    EXPECT_EQ(better_by_name(name), Better::lower) << name;
  }
  for (const char* const name : {"recall", "loss_top5", "top1_error", "mape", ""}) {
    EXPECT_EQ(better_by_name(name), std::nullopt) << name;
  }
}

TEST(BetterTest, AWordHasPriorityOverTheName) {
  EXPECT_EQ(chosen_better("val/loss", "auto", "metric", "better"), Better::lower);
  EXPECT_EQ(chosen_better("val/loss", "higher", "metric", "better"), Better::higher);
  EXPECT_EQ(chosen_better("recall", "lower", "metric", "better"), Better::lower);
  try {
    chosen_better("recall", "auto", "ckpt.metric (test)", "ckpt.better");
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "ckpt.metric (test): the name 'recall' does not determine whether lower or higher values are better; "
                 "set ckpt.better=lower or higher");
  }
}

TEST(BetterTest, FormerWordsAreTranslated) {
  const auto translate = [](const char* former_name, const char* word) {
    return better_key("better", former_name).replaces.front().translate(word, "");
  };
  EXPECT_EQ(translate("rule", "less"), "lower");
  EXPECT_EQ(translate("rule", "greater"), "higher");
  EXPECT_EQ(translate("rule", "auto"), "auto");
  EXPECT_EQ(translate("better", "less"), "lower");
  for (const char* const word_of_today : {"auto", "lower", "higher"}) {
    EXPECT_EQ(translate("better", word_of_today), "") << word_of_today;
  }
}

}  // namespace better_test
}  // namespace lockstep
