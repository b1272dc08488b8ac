// SPDX-License-Identifier: BSD-3-Clause
// Damage of every kind to good files of every format: a reader gives values or a sentence, never a crash, and never
// values that a checksum contradicts.
#include <algorithm>
#include <chrono>

#include "foreign_support.hpp"
#include "support/damage.hpp"
#include "support/folders.hpp"

namespace lockstep::checkpoints {
namespace foreign_mutation_test {

std::vector<std::string> good_files(const TemporaryFolder& directory) {
  std::vector<std::string> files;
  std::vector<NamedArray> arrays = arrays_of_all_dtypes();
  std::erase_if(arrays, [](const NamedArray& one) {
    return one.array.dtype == DType::complex128 || one.name == "." || one.name.find('/') != std::string::npos;
  });
  for (const std::string suffix : {".safetensors", ".pt", ".npz", ".h5"}) {
    files.push_back(directory / ("good" + suffix));
    write_foreign(files.back(), *export_kind_of(files.back()), arrays, {{"note", "metadata"}});
  }
  for (const char* name : {"dtypes.safetensors", "dtypes.pt", "views.pt", "objects.pt", "optimizer_adam.pt"}) {
    const std::filesystem::path golden = testing::golden(std::string("interop/") + name);
    if (std::filesystem::exists(golden)) files.push_back(golden.string());
  }
  return files;
}

TEST(ForeignMutationTest, DamageIsRefusedOrHarmless) {
  const TemporaryFolder directory;
  const std::string path = directory / "mutant";
  const std::size_t cases = testing::is_long_run() ? 40'000 : 2'000;
  testing::Random random(testing::test_seed());
  const std::vector<std::string> files = good_files(directory);
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    const std::string& good = files[i % files.size()];
    put_bytes(path, testing::damaged(bytes_of(good), random));
    const auto started = std::chrono::steady_clock::now();
    const std::string error = error_of_foreign(path);
    EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(10)) << good << ", case " << i;
    if (error.empty()) continue;
    ++refused;
    EXPECT_TRUE(error.starts_with(path + ": ")) << error;
    EXPECT_TRUE(std::none_of(error.begin(), error.end(), [](unsigned char c) { return c < 0x20; })) << error;
  }
  EXPECT_GT(refused, cases / 2) << "the mutations do not reach the checks";
}

// A zip archive has a CRC-32 of every record: no flipped bit of a tensor is ever loaded.
TEST(ForeignMutationTest, EveryFlippedBitOfATensorIsNamed) {
  const TemporaryFolder directory;
  std::vector<std::uint8_t> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(0xA0 + i);
  for (const std::string suffix : {".pt", ".npz"}) {
    const std::string path = directory / ("good" + suffix);
    write_foreign(path, *export_kind_of(path), {{"conv.weight", array_of(DType::uint8, {24}, values)}}, {});
    const std::string good = bytes_of(path);
    const std::size_t begin = good.find(std::string(values.begin(), values.end()));
    ASSERT_NE(begin, std::string::npos);
    for (std::size_t bit = 0; bit < 8 * values.size(); ++bit) {
      std::string damaged = good;
      damaged[begin + bit / 8] = static_cast<char>(damaged[begin + bit / 8] ^ 1 << bit % 8);
      put_bytes(path, damaged);
      const std::string error = error_of_foreign(path);
      EXPECT_NE(error.find("conv.weight"), std::string::npos) << error;
      EXPECT_NE(error.find("it is damaged"), std::string::npos) << error;
    }
  }
}

}  // namespace foreign_mutation_test
}  // namespace lockstep::checkpoints
