// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/engine/train_step.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "small_run.hpp"

namespace lockstep::engine {
namespace hook_table_test {

using Hooks = std::vector<PrioritizedHook>;

Hooks make(const std::vector<std::string>& texts, const Registry& registry = builtin_registry()) {
  Settings settings;
  for (const std::string& text : texts) settings.emplace_back("train.hooks", text);
  static std::vector<std::unique_ptr<Sections>> kept;  // which hooks may refer to
  kept.push_back(std::make_unique<Sections>(sections_of(settings, registry)));
  return make_hooks(*kept.back(), registry.hooks);
}

/// The name of the only state of a hook in checkpoints.
std::string state_of(const PrioritizedHook& hook) {
  const auto states = hook.second->states();
  return states.size() == 1 ? states.front()->name() : std::to_string(states.size()) + " states";
}

std::string error_of(const std::vector<std::string>& texts) {
  try {
    make(texts);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// strategy.md 14.1.2
TEST(PriorityTest, HasNamesInAnyCaseAndNumbers) {
  const std::vector<std::pair<std::string, int>> names = {
      {"HIGHEST", 0},       {"very_high", 10}, {"High", 30},     {"above_normal", 40}, {"normal", 50},
      {"below_normal", 60}, {"low", 70},       {"very_low", 90}, {"lowest", 100},      {"0", 0},
      {"55", 55},           {"100", 100}};
  for (const auto& [name, value] : names) EXPECT_EQ(static_cast<int>(priority_of(name, "x")), value) << name;
  for (const char* const name : {"", "-1", "101", "5.5", "lowish", "12x"}) {
    EXPECT_THROW(priority_of(name, "x"), ConfigError) << name;
  }
}

TEST(HookTableTest, MakesWhatIsNamedInOrder) {
  const Hooks hooks = make({"precise_bn,samples=100", "early_stopping,metric=val/accuracy,patience=3",
                            "sync_buffers,priority=very_low", "memory,priority=7"});
  ASSERT_EQ(hooks.size(), 4U);
  EXPECT_EQ(hooks[0].first, Priority::above_normal);
  EXPECT_EQ(hooks[1].first, Priority::lowest);
  EXPECT_EQ(state_of(hooks[1]), "hooks/early_stopping");
  EXPECT_EQ(hooks[2].first, Priority::very_low);
  EXPECT_EQ(static_cast<int>(hooks[3].first), 7);
  EXPECT_TRUE(make({}).empty());
}

TEST(HookTableTest, TwoOfOneRowKeepTwoStates) {
  const Hooks hooks = make({"early_stopping", "memory", "early_stopping,metric=val/accuracy", "early_stopping"});
  EXPECT_EQ(state_of(hooks[0]), "hooks/early_stopping");
  EXPECT_EQ(state_of(hooks[2]), "hooks/early_stopping#2");
  EXPECT_EQ(state_of(hooks[3]), "hooks/early_stopping#3");
}

TEST(HookTableTest, RefusesWhatItDoesNotKnow) {
  const std::string unknown = error_of({"early_stoping"});
  EXPECT_NE(unknown.find("train.hooks (test): 'early_stoping' is unknown; choose one of: early_stopping, precise_bn"),
            std::string::npos)
      << unknown;
  EXPECT_NE(unknown.find("did you mean 'early_stopping'?"), std::string::npos) << unknown;
  EXPECT_NE(error_of({"early_stopping,patients=3"}).find("patience"), std::string::npos);
  EXPECT_NE(error_of({"early_stopping,patience=0"}), "");
  EXPECT_NE(error_of({"early_stopping,patience"}).find("key=value"), std::string::npos);
  EXPECT_NE(error_of({"early_stopping,min_delta=-1"}), "");
  EXPECT_NE(error_of({"early_stopping,metric=recall"}).find("set better=lower or higher"), std::string::npos);
  EXPECT_NE(error_of({"memory,priority=lo"}).find("did you mean 'low'?"), std::string::npos);
  EXPECT_NE(error_of({"profiler,ranks=0/-1"}), "");
}

TEST(HookTableTest, TheKeyDescribesEveryRowAndItsOptions) {
  const KeySpec key = hooks_key(builtin_hooks());
  ASSERT_EQ(key.parts.size(), builtin_hooks().size());
  for (std::size_t i = 0; i < key.parts.size(); ++i) {
    const HookRow& row = builtin_hooks()[i];
    EXPECT_EQ(key.parts[i].name, row.name);
    EXPECT_EQ(key.parts[i].parts.size(), row.keys.size() + 1);
    EXPECT_EQ(key.parts[i].parts.back().name, "priority");
    EXPECT_EQ(make({row.name}).front().first, row.priority) << row.name;
  }
}

TEST(HookTableTest, AProgramAddsRows) {
  Registry registry;
  std::string made;
  registry.hooks.push_back({"mine",
                            "counts",
                            {{.name = "by", .type = KeyType::integer, .default_value = "1", .help = ""}},
                            Priority::low,
                            [&made](const Section& options, const HookContext& context) {
                              made = context.name + std::to_string(options.integer("by")) +
                                     context.run.at("model").text("name");
                              return callback_hook({});
                            }});
  EXPECT_EQ(make({"mine,by=3"}, registry).front().first, Priority::low);
  EXPECT_EQ(made, "mine3cnn");
}

// Called without a run: the functions do not look at it.
TEST(CallbackHookTest, CallsEachMomentAndLetsGoAfterTheLast) {
  std::vector<std::string> moments;
  const auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  const auto note = [&moments](const char* name, std::shared_ptr<int> keeps = nullptr) {
    return [&moments, name, keeps](auto&&...) { moments.emplace_back(name); };
  };
  const std::unique_ptr<Hook> hook = callback_hook({.before_train = note("before_train", held),
                                                    .before_epoch = note("before_epoch"),
                                                    .before_step = note("before_step"),
                                                    .on_forward = note("on_forward"),
                                                    .on_loss = note("on_loss"),
                                                    .on_backward = note("on_backward"),
                                                    .on_update = note("on_update"),
                                                    .before_agreement = note("before_agreement"),
                                                    .on_measured = note("on_measured"),
                                                    .after_step = note("after_step"),
                                                    .after_epoch = note("after_epoch"),
                                                    .between_steps = note("between_steps"),
                                                    .before_evaluation = note("before_evaluation"),
                                                    .after_evaluation = note("after_evaluation"),
                                                    .before_save = note("before_save"),
                                                    .after_train = note("after_train"),
                                                    .states = {hook_state("mine", {}, {})},
                                                    .reads = HookReads{.gradients = true}});
  alignas(RunView) std::byte memory[sizeof(RunView)];
  RunView& nobody = *reinterpret_cast<RunView*>(memory);
  const auto call_all = [&] {
    hook->before_train(nobody);
    hook->before_epoch(nobody);
    hook->before_step(nobody);
    hook->on_forward(nobody, {});
    hook->on_loss(nobody, {});
    hook->on_backward(nobody, {});
    hook->on_update(nobody, {});
    hook->before_agreement(nobody);
    hook->on_measured(nobody, {});
    hook->after_step(nobody, {});
    hook->after_epoch(nobody);
    hook->between_steps(nobody, {});
    hook->before_evaluation(nobody);
    hook->after_evaluation(nobody, {});
    hook->before_save(nobody);
    hook->after_train(nobody, Outcome::done);
  };
  EXPECT_TRUE(hook->reads().gradients);
  call_all();
  EXPECT_EQ(moments, (std::vector<std::string>{"before_train", "before_epoch", "before_step", "on_forward", "on_loss",
                                               "on_backward", "on_update", "before_agreement", "on_measured",
                                               "after_step", "after_epoch", "between_steps", "before_evaluation",
                                               "after_evaluation", "before_save", "after_train"}));
  EXPECT_EQ(watched.use_count(), 1);  // the test's own
  call_all();
  EXPECT_EQ(moments.size(), 16U);
  EXPECT_EQ(hook->states().size(), 1U);  // the last checkpoint has it, which other hooks may still write
  const std::unique_ptr<Hook> empty = callback_hook({});
  empty->before_train(nobody);
  empty->after_train(nobody, Outcome::failed);
}

TEST(CallbackHookTest, ReadsReportsIfAFunctionReceivesThem) {
  const auto reads = [](Callbacks callbacks) {
    const auto& report = callback_hook(std::move(callbacks))->reads().report;
    return report && report(Progress());
  };
  EXPECT_FALSE(reads({}));
  EXPECT_FALSE(reads({.on_measured = [](RunView&, const StepReport&) {}}));
  EXPECT_TRUE(reads({.after_step = [](RunView&, const StepReport&) {}}));
  EXPECT_TRUE(reads({.between_steps = [](RunView&, const StepReport&) {}}));
  EXPECT_FALSE(reads({.after_step = [](RunView&, const StepReport&) {}, .reads = HookReads::nothing()}));
}

}  // namespace hook_table_test
}  // namespace lockstep::engine
