// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "arrays/array_file.hpp"
#include "support/temporary_folder.hpp"
#include "unit/arrays/npy_bytes.hpp"

namespace lockstep::arrays {
namespace open_files_test {

using testing::TemporaryFolder;

TEST(OpenFilesTest, TheLeastRecentlyUsedFileIsClosed) {
  const TemporaryFolder folder;
  for (const char* const name : {"a", "b", "c"}) folder.write(name, npy_bytes("|u1", "3,", "abc"));
  OpenFiles files(2);
  const std::weak_ptr<const ArrayFile> a = files.get(folder / "a"), b = files.get(folder / "b");
  EXPECT_EQ(files.get(folder / "a"), a.lock());
  files.get(folder / "c");
  EXPECT_FALSE(a.expired());
  EXPECT_TRUE(b.expired());
  const std::shared_ptr<const ArrayFile> again = files.get(folder / "b");
  EXPECT_TRUE(a.expired());
  files.get(folder / "a");
  files.get(folder / "c");
  EXPECT_EQ(again->find("").shape, (std::vector<std::int64_t>{3}));  // a file in use stays open
}

TEST(OpenFilesTest, AFailureIsNotKept) {
  const TemporaryFolder folder;
  OpenFiles files(1);
  EXPECT_THROW(files.get(folder / "a"), DataError);
  folder.write("a", npy_bytes("|u1", "3,", "abc"));
  EXPECT_EQ(files.get(folder / "a")->path(), folder / "a");
}

}  // namespace open_files_test
}  // namespace lockstep::arrays
