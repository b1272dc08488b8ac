// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint in several files, and one that is a single file.
#include "checkpoints/store/checkpoint_index.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace parts_test {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// Written as `count` writers do it, each for itself.
std::string write_in_parts(const std::string& directory, std::int64_t step, const Archive& archive,
                           std::uint32_t count) {
  const std::string staged = stage(directory, step);
  for (std::uint32_t i = count; i > 0; --i) write_part(staged, step, archive, {i - 1, count});
  return commit(directory, staged, step, {.parts = count});
}

Archive with_tied(std::int64_t step) {
  Archive archive = sample(step);
  archive.link("/meta/tied", "/model/params/fc.weight");
  return archive;
}

TEST(PartsTest, AnyNumberOfWritersGivesTheSameArchive) {
  for (std::uint32_t count = 1; count <= 9; ++count) {  // also more than there are arrays
    const TemporaryFolder directory;
    const Archive archive = sample(3);
    const std::string folder = write_in_parts(directory.path(), 3, archive, count);
    EXPECT_TRUE(same(archive, read(folder))) << count;
    EXPECT_EQ(names_of(folder).size(), count == 1 ? 1 : count + 1) << count;
    EXPECT_EQ(read_checkpoint_index(folder).arrays.size(), archive.array_paths().size());
    EXPECT_EQ(read_groups(folder).integer("/", "step"), 3);
    EXPECT_EQ(read_array(folder, "/meta/config").bytes.size(), archive.array("/meta/config").bytes.size());
    EXPECT_EQ(list(directory.path()), std::vector<std::int64_t>{3});
  }
}

TEST(PartsTest, ASecondNameStaysWithTheFirst) {
  const TemporaryFolder directory;
  const Archive back = read(write_in_parts(directory.path(), 3, with_tied(3), 3));
  EXPECT_EQ(back.first_path_of("/meta/tied"), "/model/params/fc.weight");
  EXPECT_EQ(back.array_paths().size(), with_tied(3).array_paths().size());
}

TEST(PartsTest, AMissingShardIsNamed) {
  const TemporaryFolder directory;
  const std::string folder = write_in_parts(directory.path(), 3, sample(3), 3);
  fs::remove(folder + "/shard-00001-of-00003.h5");
  EXPECT_EQ(error_of_read(folder), folder + ": these shards are missing: shard-00001-of-00003.h5");
}

TEST(PartsTest, AShardOfAnotherCheckpointIsNamed) {
  const TemporaryFolder directory;
  const std::string one = write_in_parts(directory.path(), 3, sample(3), 2);
  const std::string other = write_in_parts(directory.path(), 4, sample(4), 2);
  const std::string shard = "/shard-00000-of-00002.h5";
  fs::copy_file(other + shard, one + shard, fs::copy_options::overwrite_existing);
  EXPECT_EQ(error_of_read(one).rfind(one + shard + ": it belongs to another checkpoint", 0), 0U) << error_of_read(one);
}

TEST(PartsTest, ADamagedManifestIsNamed) {
  const TemporaryFolder directory;
  const std::string folder = write_in_parts(directory.path(), 3, sample(3), 2);
  const std::string manifest = bytes_of(folder + "/MANIFEST.json");
  for (const std::string& text :
       {std::string(), manifest.substr(0, manifest.size() / 2), manifest + std::string("\0x", 2), std::string("{}"),
        std::string("[1, 2"), std::string(R"({"format_version": 1, "step": 3, "shards": []})"),
        std::string(R"({"format_version": 1, "step": 3, "shards": [{"name": "../x", "digest": ""}]})"),
        std::string(R"({"format_version": 1, "step": 3, "shards": [{"name": 7, "digest": 8}]})")}) {
    put_bytes(folder + "/MANIFEST.json", text);
    EXPECT_NE(error_of_read(folder).find("MANIFEST.json: it is damaged"), std::string::npos) << text;
  }
  put_bytes(folder + "/MANIFEST.json", manifest);
  EXPECT_EQ(error_of_read(folder), "");
}

TEST(PartsTest, WithoutAllPartsThereIsNothingToCommit) {
  const TemporaryFolder directory;
  write(directory.path(), 2, sample(2));
  const std::string staged = stage(directory.path(), 3);
  write_part(staged, 3, sample(3), {0, 2});
  const std::string error = error_of([&] { commit(directory.path(), staged, 3, {.parts = 2}); });
  EXPECT_NE(error.find("could not be saved; earlier checkpoints are not affected"), std::string::npos) << error;
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000002"}));
}

TEST(PartsTest, ASingleFileIsACheckpointLikeAnyOther) {
  const TemporaryFolder directory;
  const std::string staged = stage(directory.path(), 7);
  write_part(staged, 7, sample(7), {});
  const std::string file = commit(directory.path(), staged, 7, {.is_single_file = true});
  EXPECT_EQ(file, directory / "step-000000000007.h5");
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000007.h5"}));
  EXPECT_EQ(list(directory.path()), std::vector<std::int64_t>{7});
  EXPECT_EQ(latest(directory.path()), file);
  EXPECT_TRUE(same(sample(7), read(file)));
  write(directory.path(), 8, sample(8));
  write(directory.path(), 9, sample(9));
  retain(directory.path(), {.keep_last = 1});
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000009"}));
}

TEST(PartsTest, ARenamedSingleFileIsNoticed) {
  const TemporaryFolder directory;
  const std::string staged = stage(directory.path(), 7);
  write_part(staged, 7, sample(7), {});
  const std::string file = commit(directory.path(), staged, 7, {.is_single_file = true});
  const std::string renamed = directory / "step-000000000008.h5";
  fs::rename(file, renamed);
  EXPECT_EQ(error_of_read(renamed), renamed + ": it was written at step 7, but its name has another number");
}

}  // namespace parts_test
}  // namespace lockstep::checkpoints
