// SPDX-License-Identifier: BSD-3-Clause
// What a path may name: runs, folders, shards, single files, and models in several safetensors files.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "crafted.hpp"
#include "run.hpp"

namespace lockstep::ckpt {
namespace sources_test {

namespace fs = std::filesystem;

/// Three checkpoints of a run, each in another form: a folder, shards, a single file. Each tells of the one before, the
/// first of one that is not here.
class FormsTest : public ::testing::Test {
 protected:
  FormsTest() {
    fs::create_directories(run_ + "/ckpt");
    std::string lineage = "step 5 digest " + std::string(32, '5') + " ranks 2\n";
    std::string parent(32, '5');
    const auto state = [&](std::int64_t step) {
      checkpoints::Archive archive = small_state(step, "00000000000000aa");
      archive.set("/", "parent_digest", parent);
      archive.put("/meta/lineage", checkpoints::text_array(lineage));
      return archive;
    };
    const auto note = [&](std::int64_t step, const std::string& path) {
      parent = checkpoints::read_checkpoint_index(path).digest;
      lineage += "step " + std::to_string(step) + " digest " + parent + " ranks 2\n";
      paths_.push_back(path);
    };
    note(10, checkpoints::write(run_ + "/ckpt", 10, state(10)));
    const std::string parts = checkpoints::stage(run_ + "/ckpt", 20);
    for (const std::uint32_t i : {0U, 1U}) checkpoints::write_part(parts, 20, state(20), {i, 2});
    note(20, checkpoints::commit(run_ + "/ckpt", parts, 20, {.parts = 2}));
    const std::string single = checkpoints::stage(run_ + "/ckpt", 30);
    checkpoints::write_part(single, 30, state(30), {});
    note(30, checkpoints::commit(run_ + "/ckpt", single, 30, {.is_single_file = true}));
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
  std::vector<std::string> paths_;
};

TEST_F(FormsTest, LineageOfARunNamesEveryParent) {
  for (const std::string& path : {run_, run_ + "/ckpt"}) {
    const auto rows = json_of({"lineage", path})["checkpoints"];
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0]["step"], 5);
    EXPECT_EQ(rows[0]["is_here"], false);
    for (const std::size_t i : {1U, 2U, 3U}) {
      EXPECT_EQ(rows[i]["step"], 10 * i);
      EXPECT_EQ(rows[i]["parent_step"], i == 1 ? 5 : 10 * (i - 1));
      EXPECT_EQ(rows[i]["is_stored"], true);
      EXPECT_EQ(rows[i]["is_here"], true);
      EXPECT_EQ(rows[i]["run_id"], "00000000000000aa");
    }
  }
  const std::string diagram = run_captured({"lineage", "--mermaid", run_}).output;
  EXPECT_NE(diagram.find("n0[\"step 5, not here\"]"), std::string::npos) << diagram;
  EXPECT_NE(diagram.find("n2 --> n3"), std::string::npos) << diagram;
}

TEST_F(FormsTest, LineageOfOneCheckpointIsTheStoredOne) {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const auto rows = json_of({"lineage", paths_[i]})["checkpoints"];
    ASSERT_EQ(rows.size(), i + 2) << paths_[i];
    for (std::size_t k = 0; k <= i + 1; ++k) EXPECT_EQ(rows[k]["step"], k == 0 ? 5 : 10 * k) << paths_[i];
    EXPECT_EQ(rows[i + 1]["parent_step"], i == 0 ? 5 : 10 * i);
  }
  fs::copy_file(paths_[2], folder_ / "best.h5");  // the name tells nothing
  EXPECT_EQ(json_of({"lineage", folder_ / "best.h5"})["checkpoints"].back()["step"], 30);
}

TEST_F(FormsTest, ADoctorSeesRunsShardsAndSingleFiles) {
  const Ran all = run_captured({"doctor", run_});
  EXPECT_EQ(all.code, 0) << all.output;
  EXPECT_NE(all.output.find("3 checkpoints, step-000000000010 to step-000000000030.h5"), std::string::npos)
      << all.output;
  EXPECT_NE(all.output.find("all belong to run 00000000000000aa"), std::string::npos) << all.output;
  for (const std::string& path : paths_) {
    const Ran one = run_captured({"doctor", path});
    EXPECT_EQ(one.code, 0) << one.output;
    EXPECT_NE(one.output.find("all parameters are finite"), std::string::npos) << one.output;
    EXPECT_EQ(one.output.find("problem"), std::string::npos) << one.output;
  }
  fs::remove(paths_[1] + "/shard-00001-of-00002.h5");
  const Ran shard = run_captured({"doctor", paths_[1]});
  EXPECT_EQ(shard.code, 4) << shard.output;
  EXPECT_NE(shard.output.find("these shards are missing: shard-00001-of-00002.h5"), std::string::npos) << shard.output;
  EXPECT_EQ(run_captured({"doctor", run_}).code, 4);
  fs::resize_file(paths_[2], 5000);
  const Ran single = run_captured({"doctor", paths_[2]});
  EXPECT_EQ(single.code, 4) << single.output;
  EXPECT_NE(single.output.find("it is truncated"), std::string::npos) << single.output;
  // One that cannot be read does not hide the others.
  const auto rows = json_of({"lineage", run_})["checkpoints"];
  EXPECT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1]["step"], 10);
  EXPECT_NE(rows[2]["problem"].get<std::string>().find("these shards are missing"), std::string::npos);
}

TEST_F(FormsTest, ADoctorNamesALeaseFromTheFuture) {
  const std::string lease = folder_ / "run/ckpt/LEASE";
  const auto look = [&](const std::string& text, std::chrono::hours later) {
    std::ofstream(lease) << text;
    fs::last_write_time(lease, fs::file_time_type::clock::now() + later);
    return run_captured({"doctor", run_}).output;
  };
  EXPECT_NE(look("host n1\nprocess 7\n", std::chrono::hours(3))
                .find("the lease of process 7 on n1 was renewed 3 h in the future: the clocks of two hosts differ"),
            std::string::npos);
  EXPECT_NE(
      look("host n1\nprocess 7\n", std::chrono::hours(-3)).find("the lease of process 7 on n1 was renewed 3 h ago"),
      std::string::npos);
  EXPECT_NE(look("", std::chrono::hours(0)).find("the file LEASE names no run; the next run replaces it"),
            std::string::npos);
}

/// "a" and "b" in the first file, "c" in the second.
class IndexTest : public ::testing::Test {
 protected:
  IndexTest() {
    put("model-00001-of-00002.safetensors",
        safetensors_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                       "xyz"));
    put("model-00002-of-00002.safetensors",
        safetensors_of(R"({"c":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "123"));
    put_index(R"("a": ")" + one_ + R"(", "b": ")" + one_ + R"(", "c": ")" + two_ + "\"");
  }
  void put(const std::string& name, const std::string& bytes) const { put_bytes(folder_ / name, bytes); }
  void put_index(const std::string& entries) const {
    put_bytes(index_, R"({"metadata": {"total_size": 6}, "weight_map": {)" + entries + "}}\n");
  }
  void expect_refusal(const std::string& entries, int code, const std::string& part) const {
    put_index(entries);
    const Ran ran = run_captured({"verify", index_});
    EXPECT_EQ(ran.code, code) << ran.output;
    EXPECT_NE(ran.output.find(part), std::string::npos) << ran.output << part;
  }

  TemporaryFolder folder_;
  std::string one_ = "model-00001-of-00002.safetensors";
  std::string two_ = "model-00002-of-00002.safetensors";
  std::string index_ = folder_ / "model.safetensors.index.json";
};

TEST_F(IndexTest, SeveralFilesAreOneSource) {
  for (const std::string& path : {index_, folder_.path()}) {
    const auto arrays = json_of({"ls", path})["arrays"];
    ASSERT_EQ(arrays.size(), 3U);
    EXPECT_EQ(arrays[0]["name"], "a");
    EXPECT_EQ(arrays[2]["name"], "c");
    EXPECT_EQ(json_of({"show", path, "c"})["values"].dump(), "[49,50,51]");
    const auto info = json_of({"info", path});
    EXPECT_EQ(info["kind"], "a model in several safetensors files");
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path())) bytes += entry.file_size();
    EXPECT_EQ(info["bytes"], bytes);
    EXPECT_EQ(run_captured({"verify", index_}).code, 0);
  }
  // The same tensors in one file have the same digest.
  const TemporaryFolder other;
  ASSERT_EQ(run_captured({"convert", index_, "--to", other / "whole.safetensors"}).code, 0);
  EXPECT_EQ(json_of({"hash", other / "whole.safetensors"})["state"], json_of({"hash", index_})["state"]);
}

TEST_F(IndexTest, AnIndexThatDoesNotFitIsRefused) {
  const std::string a = R"("a": ")" + one_ + "\"";
  const std::string b = R"("b": ")" + one_ + "\"";
  const std::string c = R"("c": ")" + two_ + "\"";
  expect_refusal(a + "," + c, 4, "/b: the index ");
  expect_refusal(a + "," + b + "," + c + R"(,"d":")" + two_ + "\"", 4, "/d: it is not in " + two_);
  expect_refusal(a + R"(,"b":")" + two_ + "\"," + c, 4, "the files do not belong together");
  expect_refusal(a + "," + b + R"(,"c":"model-3.safetensors")", 4, "these files are missing: 'model-3");
  expect_refusal(a + "," + a + "," + b + "," + c, 4, "tensor 'a': the index lists it twice");
  expect_refusal(a + R"(,"c":7)", 4, "tensor 'c': the index states no file for it");
  for (const std::string file : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    expect_refusal(R"("c":")" + file + "\"", 7, "is not in the folder of the index; this is not allowed");
  }
  expect_refusal("", 0, "complete: 0 arrays");
  put_bytes(index_, R"({"weight_map": {"a": )");
  EXPECT_EQ(run_captured({"ls", index_}).code, 4);
  put_bytes(index_, R"({"weight_map": {}})" + std::string("\0x", 2));
  EXPECT_EQ(run_captured({"ls", index_}).code, 4);
  put_bytes(index_, R"({"weight_map": )" + std::string(100'000, '['));
  EXPECT_EQ(run_captured({"ls", index_}).code, 4);
}

}  // namespace sources_test
}  // namespace lockstep::ckpt
