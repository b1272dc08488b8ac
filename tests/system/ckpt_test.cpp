// SPDX-License-Identifier: BSD-3-Clause
// The program `ckpt` from outside: what it prints and returns for checkpoints that are whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ckpt_runs.hpp"

namespace lockstep {
namespace ckpt_test {

namespace fs = std::filesystem;
using testing::ckpt;
using testing::json_of;
using testing::ProgramResult;
using testing::state_of;
using testing::Variant;

constexpr int kUsage = 2;
constexpr int kRefused = 7;
constexpr int kNotFound = 8;

class CkptTest : public ::testing::Test {
 protected:
  std::string write(const std::string& run, const Variant& variant = {}) const {
    return checkpoints::write(folder_.path(run) + "/ckpt", variant.step, state_of(variant));
  }

  static void expect_refusal(const std::string& arguments, int code, const std::string& part) {
    const ProgramResult outcome = ckpt(arguments);
    EXPECT_EQ(outcome.exit_code, code) << arguments << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  }

  static std::string state_hash(const std::string& path) { return json_of("hash " + path)["state"]; }

  testing::TemporaryFolder folder_;
};

TEST_F(CkptTest, HelpOfEveryCommand) {
  const ProgramResult overview = ckpt("--help");
  EXPECT_EQ(overview.exit_code, 0);
  for (const char* const command : {"info", "ls", "tree", "show", "stat", "hist", "verify", "diff", "hash", "convert",
                                    "average", "cast", "edit", "doctor", "prune", "lineage"}) {
    EXPECT_NE(overview.output.find(std::string("  ") + command + " "), std::string::npos) << command;
    const ProgramResult help = ckpt(std::string(command) + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.output.find("--json"), std::string::npos) << command;
  }
}

TEST_F(CkptTest, InfoStatesStepSizeAndRate) {
  const std::string path = write("a");
  const auto json = json_of("info " + path);
  EXPECT_EQ(json["attributes"]["step"], 10);
  EXPECT_EQ(json["optimizer"], "adamw");
  EXPECT_EQ(json["lr"], "0.0005");
  EXPECT_EQ(json["parameters"][0]["elements"], 8);
  EXPECT_FALSE(json.contains("best"));
  EXPECT_EQ(json_of("info " + write("b", {.best_step = 5}))["best"], "val/loss 0.5 at step 5");
  EXPECT_NE(ckpt("info " + path).output.find("8 float32 in 2 arrays"), std::string::npos);
}

// A folder of checkpoints, a run's folder, a checkpoint and its file name the same.
TEST_F(CkptTest, APathMayBeAnyOfThem) {
  write("a");
  const std::string newest = write("a", {.step = 20, .weight = 9});
  const std::string expected = json_of("ls " + newest)["arrays"].dump();
  for (const std::string& path : {folder_ / "a", folder_ / "a/ckpt", newest + "/state.h5", newest + "/"}) {
    EXPECT_EQ(json_of("ls " + path)["arrays"].dump(), expected) << path;
  }
  EXPECT_EQ(json_of("show " + newest + "/model/params/conv.weight[0]")["values"].dump(), "[9.0,2.0,3.0]");
  EXPECT_EQ(json_of("show " + (folder_ / "a") + " 'conv.weight[:, 1]'")["values"].dump(), "[2.0,5.0]");
  EXPECT_EQ(json_of("show " + newest + "/state.h5/sampler")["attributes"]["samples_in_epoch"], 320);
}

TEST_F(CkptTest, FiltersSortsAndLimits) {
  const std::string path = write("a");
  const auto names = [&](const std::string& options) {
    std::string text;
    const auto json = json_of("ls " + path + " " + options);
    for (const auto& array : json["arrays"]) text += array["name"].get<std::string>() + " ";
    return text;
  };
  EXPECT_EQ(names("--filter 'conv.*'"), "conv.weight conv.bias ");
  EXPECT_EQ(names("--filter '/^conv/' --sort name"), "conv.bias conv.weight ");
  EXPECT_EQ(names("--filter '/^(conv|norm)/' --sort norm --limit 2"), "conv.weight norm.mean ");
  EXPECT_EQ(names("--filter nothing"), "");
}

TEST_F(CkptTest, StatAndHist) {
  const std::string path = write("a");
  const auto row = json_of("stat " + path + " --filter conv.weight")["arrays"][0];
  EXPECT_EQ(row["min"], 1.0);
  EXPECT_EQ(row["max"], 6.0);
  EXPECT_EQ(row["mean"], 3.5);
  EXPECT_EQ(json_of("stat " + path + " --filter conv.weight --recompute")["arrays"][0], row);
  EXPECT_EQ(json_of("stat " + path + " --filter conv.bias")["arrays"][0]["remarks"], "all zero");
  EXPECT_EQ(json_of("hist " + path + " conv.weight --bins 5")["counts"].dump(), "[1,1,1,1,2]");
}

TEST_F(CkptTest, HashCoversTheStateAndNothingElse) {
  const std::string base = state_hash(write("a"));
  EXPECT_EQ(base.size(), 32U);
  EXPECT_EQ(state_hash(write("b", {.world_size = 4, .config = "[run]\n", .best_step = 5})), base);
  EXPECT_EQ(state_hash(write("c", {.is_reversed = true})), base);
  std::set<std::string> others = {base, state_hash(write("d", {.step = 11})), state_hash(write("e", {.weight = 2})),
                                  state_hash(write("f", {.weight = -1})), state_hash(write("g", {.position = 352}))};
  EXPECT_EQ(others.size(), 5U);
  const ProgramResult text = ckpt("hash " + (folder_ / "a"));
  EXPECT_EQ(std::count(text.output.begin(), text.output.end(), '\n'), 5);  // four arrays of the state
  EXPECT_NE(text.output.find("\nstate " + base + "\n"), std::string::npos) << text.output;
}

TEST_F(CkptTest, DiffStatesWhatDiffers) {
  const std::string a = write("a");
  const std::string b = write("b", {.weight = 1.5F});
  EXPECT_EQ(ckpt("diff " + a + " " + a).exit_code, 0);
  EXPECT_EQ(ckpt("diff " + a + " " + b).exit_code, 1);
  const auto json = json_of("diff " + a + " " + b);
  ASSERT_EQ(json["count"], 1);
  const auto& row = json["differences"][0];
  EXPECT_EQ(row["name"], "conv.weight");
  EXPECT_EQ(row["first"].dump(), "[0,0]");
  EXPECT_EQ(row["max_abs"], 0.5);
  EXPECT_EQ(row["max_ulp"], 1 << 22);  // half of the numbers from 1 to 2
  EXPECT_EQ(ckpt("diff " + a + " " + b + " --atol 0.5").exit_code, 0);
  EXPECT_EQ(ckpt("diff " + a + " " + b + " --filter norm.mean").exit_code, 0);
  EXPECT_EQ(ckpt("diff " + a + " " + write("c", {.step = 11})).exit_code, 1);
  expect_refusal("diff " + a, kUsage, "usage: ckpt diff A B");
  expect_refusal("diff " + a + " " + a + " --atol x", kUsage, "--atol");
}

TEST_F(CkptTest, ConvertsAndTheNumbersStay) {
  const std::string path = write("a");
  for (const std::string suffix : {"safetensors", "pt", "npz", "h5"}) {
    const std::string file = folder_ / ("weights." + suffix);
    const ProgramResult outcome = ckpt("convert " + path + " --to " + file);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(json_of("ls " + file)["count"], 3) << suffix;
    const auto own = json_of("hash " + path + " --filter '[!/]*'")["arrays"];
    EXPECT_EQ(json_of("hash " + file)["arrays"], own) << suffix;
    EXPECT_EQ(state_hash(file), state_hash(folder_ / "weights.safetensors")) << suffix;
    expect_refusal("convert " + path + " --to " + file, kRefused, "the file already exists");
  }
  ASSERT_EQ(
      ckpt("convert " + (folder_ / "weights.pt") + " --to " + (folder_ / "c.npz") + " --rename conv.=c.").exit_code, 0);
  EXPECT_EQ(json_of("show " + (folder_ / "c.npz") + " c.weight")["values"].size(), 6U);
  expect_refusal("convert " + path + " --to x.zip", kUsage, "must end in");
  expect_refusal("convert " + path + " --to " + (folder_ / "x.pt") + " --rename conv.weight=conv.bias", kUsage,
                 "two arrays");
  EXPECT_FALSE(fs::exists(folder_ / "x.pt"));
}

TEST_F(CkptTest, DiffComparesDocumentsByKey) {
  const auto with_documents = [this](const std::string& run, const std::string& config,
                                     const std::string& environment) {
    checkpoints::Archive archive;
    archive.set("/", "step", std::int64_t{10});
    archive.put("/meta/config_ini", checkpoints::text_array(config));
    archive.put("/meta/env_json", checkpoints::text_array(environment));
    return checkpoints::write(folder_.path(run) + "/ckpt", 10, archive);
  };
  const std::string a = with_documents("a", "# all keys\n[optim]\nlr = 0.001\neps = 1\n[sched]\nrule = x\nrule = y\n",
                                       R"({"hosts": ["n1", "n2"], "ranks": 2})");
  const std::string b = with_documents("b", "[optim]\neps = 1\nlr = 0.01\nname = adam\n[sched]\nrule = x\nrule = z\n",
                                       R"({"ranks": 2, "hosts": ["n1", "n3"]})");
  const ProgramResult outcome = ckpt("diff " + a + " " + b);
  EXPECT_EQ(outcome.exit_code, 1);
  for (const std::string line : {"optim.lr: 0.001 | 0.01\n", "optim.name: (not set) | adam\n", "hosts.1: n2 | n3\n",
                                 "sched.rule: x\\ny | x\\nz\n", "4 differences; "}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << line << outcome.output;
  }
  const auto row = json_of("diff " + a + " " + b)["differences"][2];
  EXPECT_EQ(row["key"], "optim.name");
  EXPECT_TRUE(row["a"].is_null());
  EXPECT_EQ(row["b"], "adam");
  // A text that is no document is compared as bytes.
  const std::string other = ckpt("diff " + a + " " + with_documents("c", "no key", "{}")).output;
  EXPECT_NE(other.find("/meta/config_ini: "), std::string::npos) << other;
}

TEST_F(CkptTest, AveragesModels) {
  const std::string a = write("a", {.weight = 1.5F});
  const std::string b = write("b", {.step = 20, .weight = 4});
  const std::string before = state_hash(a);
  const std::string target = folder_ / "mean";
  const ProgramResult outcome = ckpt("average " + a + " " + b + " --to " + target);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string mean = target + "/step-000000000020";
  EXPECT_EQ(outcome.output, mean + ": average of 2 checkpoints, verified\n");
  EXPECT_EQ(json_of("show " + mean + " conv.weight[0]")["values"].dump(), "[2.75,2.0,3.0]");
  EXPECT_EQ(json_of("info " + mean)["attributes"]["step"], 20);
  EXPECT_EQ(json_of("diff " + mean + " " + b)["count"], 1);  // nothing else differs from the last one
  EXPECT_EQ(state_hash(a), before);
  expect_refusal("average " + a + " " + b + " --to " + target, kRefused, "the checkpoint already exists");
  expect_refusal("average " + a + " " + b, kUsage, "--to DIR is missing");
  expect_refusal("average " + a + " --to " + target, kUsage, "usage: ckpt average A B...");
}

TEST_F(CkptTest, CastsModels) {
  const std::string a = write("a", {.weight = 1.00390625F});  // 1 + 2^-8: halfway between two numbers of bfloat16
  ASSERT_EQ(ckpt("cast " + a + " --to " + (folder_ / "x")).exit_code, 0);
  const std::string cast = folder_ / "x/step-000000000010";
  EXPECT_EQ(json_of("show " + cast + " conv.weight[0]")["values"].dump(), "[1.0,2.0,3.0]");
  EXPECT_EQ(json_of("ls " + cast + " --filter conv.weight")["arrays"][0]["dtype"], "bfloat16");
  ASSERT_EQ(ckpt("cast " + a + " --dtype float64 --to " + (folder_ / "y")).exit_code, 0);
  EXPECT_EQ(json_of("show " + (folder_ / "y") + " conv.weight[0]")["values"][0], 1.00390625);
  expect_refusal("cast " + a + " --dtype int8 --to " + (folder_ / "z"), kUsage, "--dtype must be");
}

TEST_F(CkptTest, EditsAttributes) {
  const std::string a = write("a");
  const std::string target = folder_ / "x";
  ASSERT_EQ(ckpt("edit " + a + " --to " + target + " --set run_id=other --set /optim/0@type=sgd").exit_code, 0);
  const auto info = json_of("info " + target);
  EXPECT_EQ(info["attributes"]["run_id"], "other");
  EXPECT_EQ(info["optimizer"], "sgd");
  EXPECT_EQ(json_of("info " + a)["optimizer"], "adamw");
  ASSERT_EQ(ckpt("edit " + a + " --to " + target + "1 --set /extra@ticket=12").exit_code, 0);
  EXPECT_EQ(json_of("info " + target + "1")["extra"]["ticket"], "12");
  expect_refusal("edit " + a + " --to " + target + "2 --set step=3", kUsage, "the step cannot be changed");
  expect_refusal("edit " + a + " --to " + target + "2 --set epoch=x", kUsage,
                 "does not have the type of the attribute");
  expect_refusal("edit " + a + " --to " + target + "2 --set /none@x=1", kNotFound, "does not exist");
  expect_refusal("edit " + a + " --to " + target + "2", kUsage, "edit needs --set");
}

TEST_F(CkptTest, PruneAsksFirst) {
  for (const std::int64_t step : {10, 20, 30}) write("a", {.step = step});
  const auto count = [this] { return checkpoints::list(folder_ / "a/ckpt").size(); };
  const auto plan = json_of("prune " + (folder_ / "a") + " --keep 2");
  EXPECT_EQ(plan["checkpoints"][0]["keep"], false);
  EXPECT_EQ(plan["checkpoints"][1]["keep"], true);
  EXPECT_EQ(count(), 3U);
  EXPECT_EQ(ckpt("prune " + (folder_ / "a") + " --keep 2 --yes").exit_code, 0);
  EXPECT_EQ(checkpoints::list(folder_ / "a/ckpt"), (std::vector<std::int64_t>{20, 30}));
  expect_refusal("prune " + (folder_ / "a") + " --keep 0", kUsage, "--keep");
}

TEST_F(CkptTest, PruneKeepsTheBest) {
  for (const std::int64_t step : {10, 20, 30}) write("a", {.step = step, .best_step = 10});
  EXPECT_EQ(json_of("prune " + (folder_ / "a") + " --keep 1")["checkpoints"][0]["reason"], "it is the best");
  EXPECT_EQ(ckpt("prune " + (folder_ / "a") + " --keep 1 --yes").exit_code, 0);
  EXPECT_EQ(checkpoints::list(folder_ / "a/ckpt"), (std::vector<std::int64_t>{10, 30}));
}

TEST_F(CkptTest, DoctorFindsLeftovers) {
  write("a");
  EXPECT_EQ(ckpt("doctor " + (folder_ / "a")).exit_code, 0);
  EXPECT_EQ(ckpt("doctor " + (folder_ / "a")).output.find("problem"), std::string::npos);
  fs::create_directory(folder_ / "a/ckpt/.tmp-step-000000000020.1.elsewhere");
  fs::create_directory(folder_ / "a/ckpt/.bad-step-000000000030.1");
  folder_.write("a/ckpt/LATEST", "step-000000000099\n");
  const std::string output = ckpt("doctor " + (folder_ / "a")).output;
  for (const char* const part : {".tmp-step-000000000020", ".bad-step", "LATEST states 'step-000000000099'"}) {
    EXPECT_NE(output.find(part), std::string::npos) << part << output;
  }
}

TEST_F(CkptTest, LineageGoesByOrderWhereFilesAreSilent) {
  write("a");
  write("a", {.step = 20});
  const auto rows = json_of("lineage " + (folder_ / "a"))["checkpoints"];
  EXPECT_EQ(rows[1]["parent_step"], 10);
  EXPECT_EQ(rows[1]["is_stored"], false);
  EXPECT_NE(ckpt("lineage --mermaid " + (folder_ / "a")).output.find("n0 -.-> n1"), std::string::npos);
}

TEST_F(CkptTest, SaysWhatIsNotThere) {
  const std::string path = write("a");
  expect_refusal("ls " + (folder_ / "nothing"), kNotFound, "does not exist");
  expect_refusal("ls " + (folder_ / "a/ckpt/step-000000000011"), kNotFound, "did you mean 'step-000000000010'");
  expect_refusal("show " + path + " conv.weigth", kNotFound, "did you mean 'conv.weight'");
  fs::create_directory(folder_ / "empty");
  expect_refusal("info " + (folder_ / "empty"), kNotFound, "does not contain a checkpoint");
  expect_refusal("lss " + path, kUsage, "did you mean 'ls'");
  expect_refusal("ls " + path + " --filtre x", kUsage, "did you mean '--filter'");
  expect_refusal("ls " + path + " --sort color", kUsage, "size, name, norm, order");
  expect_refusal("verify " + path + " --filter conv.weight", kUsage, "option '--filter' is unknown");
  expect_refusal("convert " + path + " --to " + (folder_ / "a.npz") + " --class-names x", kUsage, "requires --as");
  expect_refusal("diff " + path + " " + path + " --sort name", kUsage, "option '--sort' is unknown");
  expect_refusal("show " + path + " conv.weight[7]", kUsage, "is outside");
}

TEST_F(CkptTest, NeverTouchesWhatItReads) {
  const std::string path = write("a");
  const std::string before = testing::read_file(path + "/state.h5");
  const auto time = fs::last_write_time(path + "/state.h5");
  fs::permissions(path + "/state.h5", fs::perms::owner_read);
  for (const char* const command : {"info", "ls", "tree", "stat", "verify", "hash"}) {
    EXPECT_EQ(ckpt(command + (" " + path)).exit_code, 0) << command;
  }
  EXPECT_EQ(testing::read_file(path + "/state.h5"), before);
  EXPECT_EQ(fs::last_write_time(path + "/state.h5"), time);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1);
}

// A name may hold what would clear a terminal, were it printed as it is.
TEST_F(CkptTest, NamesAreSafeOnATerminal) {
  checkpoints::Archive archive = state_of({});
  archive.put(
      "/model/params/x\xC2\x9B"
      "2J\xE2\x80\xAE",
      testing::floats({1}, {1}));
  const std::string path = checkpoints::write(folder_ / "a/ckpt", 10, archive);
  for (const char* const command : {"ls", "tree", "stat", "hash"}) {
    const std::string output = ckpt(command + (" " + path)).output;
    EXPECT_NE(output.find("x\\u009B2J\\u202E"), std::string::npos) << output;
    EXPECT_EQ(output.find("\xC2\x9B"), std::string::npos);
    EXPECT_EQ(output.find("\xE2\x80\xAE"), std::string::npos);
  }
}

}  // namespace ckpt_test
}  // namespace lockstep
