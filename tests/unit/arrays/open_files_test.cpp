// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

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

/// Whether the file is refused when it is opened again after the change.
template <class Change>
bool is_refused_after(const Change& change) {
  const TemporaryFolder folder;
  for (const char* const name : {"a", "b"}) folder.write(name, npy_bytes("|u1", "3,", "abc"));
  OpenFiles files(1);
  files.get(folder / "a");
  files.get(folder / "b");
  change(folder);
  try {
    files.get(folder / "a");
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(), (folder / "a") + ": it was changed while it was in use; restore the file, or start again");
    return true;
  }
  return false;
}

TEST(OpenFilesTest, AnotherVersionOfAFileIsRefused) {
  EXPECT_FALSE(is_refused_after([](const TemporaryFolder&) {}));
  EXPECT_TRUE(
      is_refused_after([](const TemporaryFolder& folder) { folder.write("a", npy_bytes("|u1", "4,", "abcd")); }));
  EXPECT_TRUE(is_refused_after([](const TemporaryFolder& folder) {  // the time is that of the former file
    const auto time = std::filesystem::last_write_time(folder / "a");
    folder.write("new", npy_bytes("|u1", "3,", "xyz"));
    std::filesystem::last_write_time(folder / "new", time);
    std::filesystem::rename(folder / "new", folder / "a");
  }));
}

/// The sentence with which numbers of a file are refused that is changed after it was opened.
template <class Change>
std::string fault_after(const Change& change) {
  const TemporaryFolder folder;
  folder.write("a", npy_bytes("|u1", "300,", std::string(300, 'a')));
  const auto file = open_arrays(folder / "a");
  const ArrayInfo info = file->find("");
  std::vector<std::byte> out(300);
  file->read(info, whole(info), out);
  change(folder / "a");
  try {
    file->read(info, whole(info), out);
  } catch (const DataError& error) {
    return std::string(error.what()).substr((folder / "a").size());
  }
  return "";
}

TEST(OpenFilesTest, AChangeDuringTheUseOfAFileIsNotTakenForDamage) {
  const std::string changed = ": it was changed while it was in use; restore the file, or start again";
  EXPECT_EQ(fault_after([](const std::string&) {}), "");
  EXPECT_EQ(fault_after([](const std::string& path) { std::filesystem::resize_file(path, 100); }), changed);
  EXPECT_EQ(fault_after([](const std::string& path) {
              const auto time = std::filesystem::last_write_time(path);
              std::filesystem::last_write_time(path, time + std::chrono::milliseconds(5));
            }),
            changed);
  EXPECT_EQ(fault_after([](const std::string& path) { std::filesystem::remove(path); }), "") << "it is still there";
}

}  // namespace open_files_test
}  // namespace lockstep::arrays
