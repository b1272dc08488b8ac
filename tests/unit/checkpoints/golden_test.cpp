// SPDX-License-Identifier: BSD-3-Clause
// A stored file of every version of the format: they must stay readable forever.
#include "checkpoints/store/checkpoint_index.hpp"
#include "support.hpp"
#include "support/folders.hpp"

namespace lockstep::checkpoints {
namespace golden_test {

std::string stored(const std::string& name) { return testing::source_root() / "tests/data/checkpoints" / name; }

/// The archive that version1.h5 was written from, by write_part.
Archive content_of_version_1() {
  Archive archive;
  archive.set("/", "step", std::int64_t{12});
  archive.set("/optim/0", "lr", 0.1);
  archive.set("/optim/0", "type", std::string("adamw"));
  archive.put("/model/params/w", array_of<float>(DType::float32, {2, 3}, {1, -2, 3, -4, 5, -6}));
  archive.put("/model/params/d", array_of<double>(DType::float64, {}, {0.1}));
  archive.put("/model/params/h", array_of<std::uint16_t>(DType::float16, {2}, {0x3C00, 0xC000}));
  archive.put("/model/params/b", array_of<std::uint16_t>(DType::bfloat16, {2}, {0x3F80, 0xC000}));
  archive.put("/model/params/i8", array_of<std::int8_t>(DType::int8, {2}, {-1, 1}));
  archive.put("/model/params/i16", array_of<std::int16_t>(DType::int16, {1}, {-2}));
  archive.put("/model/params/i32", array_of<std::int32_t>(DType::int32, {1}, {-3}));
  archive.put("/model/params/i64", array_of<std::int64_t>(DType::int64, {1}, {-4}));
  archive.put("/model/params/u8", array_of<std::uint8_t>(DType::uint8, {1}, {255}));
  archive.put("/model/params/flag", array_of<std::uint8_t>(DType::boolean, {2}, {1, 0}));
  archive.put("/model/params/c64", array_of<float>(DType::complex64, {1}, {1, 2}));
  archive.put("/model/params/c128", array_of<double>(DType::complex128, {1}, {3, 4}));
  archive.put("/model/params/none", array_of<float>(DType::float32, {0, 4}, {}));
  archive.link("/model/params/tied", "/model/params/w");
  archive.put("/meta/" + encode_name("a/b%"), text_array("text\n"));
  return archive;
}

TEST(GoldenTest, Version1) {
  if (const char* const folder = std::getenv("LOCKSTEP_WRITE_GOLDEN")) {  // how the file came to be
    write_part(folder, 12, content_of_version_1(), {});
    return;
  }
  const Archive archive = read(stored("version1.h5"));
  EXPECT_TRUE(same(content_of_version_1(), archive));
  EXPECT_EQ(archive.first_path_of("/model/params/tied"), "/model/params/w");
  const CheckpointIndex contents = read_checkpoint_index(stored("version1.h5"));
  EXPECT_EQ(contents.step, 12);
  EXPECT_EQ(contents.arrays.front().path, "/model/params/w");
  EXPECT_EQ(contents.arrays.front().statistics.mean, -0.5);  // mean of 1 -2 3 -4 5 -6
  EXPECT_EQ(contents.arrays.front().digest, "7fcfbac9aa26e66cc5a47290b0bc5c44");
}

}  // namespace golden_test
}  // namespace lockstep::checkpoints
