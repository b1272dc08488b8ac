// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace wrong_file_test {

using namespace std::string_literals;

TEST(WrongFileTest, IsNamed) {
  const TemporaryFolder directory;
  const std::string file = directory / "state.h5";
  const std::string filler(5000, '\x01');
  const std::string remedy = "; `ckpt ls` reads it, and --init.from takes its parameters";
  const std::pair<std::string, std::string> cases[] = {
      {"", "the file is empty, as after a crash before its bytes reached the disk"},
      {std::string(9000, '\0'), "it starts with zeros: its writer was interrupted, or its data never reached the disk"},
      {"\x89LSC"s, "it is truncated: it has only 4 bytes"},
      {"\x89LSCP\r\n\x1A"s + filler.substr(0, 100), "it is truncated: it has only 108 bytes"},
      {"\x89LSCP\n\x1A"s + filler, "its line ends were converted: copy the file in binary mode"},
      {"\x89LSCP\r\r\n\x1A"s + filler, "its line ends were converted: copy the file in binary mode"},
      {"PK\x03\x04"s + filler, "it is a zip archive, such as a PyTorch .pt file, not a Lockstep checkpoint" + remedy},
      {"\x89HDF\r\n\x1A\n"s + filler,
       "it is an HDF5 file written by another program, without the envelope of a Lockstep checkpoint" + remedy},
      {"\x89HDF\r\n\x1A\n"s + filler.substr(0, 400) + "keras_version" + filler,
       "it is an HDF5 file written by Keras, without the envelope of a Lockstep checkpoint" + remedy},
      {"\x89HDF\r\n\x1A\n"s + filler.substr(0, 400) + "PYTABLES_FORMAT_VERSION" + filler,
       "it is an HDF5 file written by PyTables, without the envelope of a Lockstep checkpoint" + remedy},
      {"MATLAB 7.3 MAT-file, Platform: GLNXA64" + std::string(474, ' ') + "\x89HDF\r\n\x1A\n"s + filler,
       "it is an HDF5 file written by MATLAB, without the envelope of a Lockstep checkpoint" + remedy},
      {"\x1F\x8B\x08"s + filler, "it is a gzip file, not a Lockstep checkpoint: decompress it first (`gunzip`)"},
      {"\x20\0\0\0\0\0\0\0{\"w\":"s + filler, "it is a safetensors file, not a Lockstep checkpoint" + remedy},
      {"\x80\x02\x8A\x0A"s + filler,
       "it is a Python pickle, such as an old PyTorch .pt file, not a Lockstep checkpoint: load it in Python and call "
       "torch.save again"},
      {"[optim]\nlr = 0.1\n", "it is a text file, not a Lockstep checkpoint"},
      {filler, "it is not a Lockstep checkpoint, or its first bytes are damaged"},
  };
  for (const auto& [bytes, sentence] : cases) {
    put_bytes(file, bytes);
    EXPECT_EQ(error_of_read(file), file + ": " + sentence);
    EXPECT_EQ(error_of_read(directory.path()), file + ": " + sentence);
  }
}

TEST(WrongFileTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  const TemporaryFolder directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of_read(pipe), pipe + ": it is a pipe, not a regular file");
  EXPECT_EQ(error_of_read("/dev/zero"), "/dev/zero: it is a device, not a regular file");
}

// The cache of Hugging Face consists of links, and users link the checkpoint that they work with.
TEST(WrongFileTest, SymbolicLinksToFilesAreRead) {
  const TemporaryFolder directory;
  const std::string good = write(directory / "ckpt", 1, sample(1)) + "/state.h5";
  const std::string link = directory / "link";
  const auto relink = [&link](const std::string& target) {
    std::filesystem::remove(link);
    std::filesystem::create_symlink(target, link);
  };
  relink(good);
  EXPECT_TRUE(same(sample(1), read(link)));
  std::filesystem::create_symlink("link", directory / "second");
  EXPECT_TRUE(same(sample(1), read(directory / "second")));
  relink("gone");
  EXPECT_EQ(error_of_read(link), link + ": it is a symbolic link to 'gone', which leads to no file");
  relink("link");
  EXPECT_EQ(error_of_read(link), link + ": it is a symbolic link to 'link', which leads to no file");
  relink("/dev/zero");
  EXPECT_EQ(error_of_read(link),
            link + ": it is a symbolic link to '/dev/zero', which is a device, not a regular file");
}

TEST(WrongFileTest, MissingPathsAndFolders) {
  const TemporaryFolder directory;
  EXPECT_EQ(error_of_read(directory / "nowhere"), directory / "nowhere: the file or folder does not exist");
  EXPECT_EQ(error_of_read(directory.path()),
            directory.path() + ": it does not contain state.h5, so it is not a checkpoint");
  const std::string folder = write(directory / "ckpt", 40, sample(40));
  EXPECT_EQ(error_of_read(directory / "ckpt"),
            directory / "ckpt" + ": it is a folder of checkpoints; give one of them, such as " + folder);
  EXPECT_TRUE(same(sample(40), read(folder)));
  EXPECT_TRUE(same(sample(40), read(folder + "/")));
  EXPECT_TRUE(same(sample(40), read(folder + "/state.h5")));
  EXPECT_EQ(read(folder).origin(), folder + "/state.h5");
}

TEST(WrongFileTest, AFolderWithAnothersNumberIsRefused) {
  const TemporaryFolder directory;
  const std::string folder = write(directory.path(), 40, sample(40));
  std::filesystem::rename(folder, directory / "step-000000000041");
  EXPECT_EQ(error_of_read(directory / "step-000000000041"),
            directory / "step-000000000041/state.h5: it was written at step 40, but its folder has another number");
  std::filesystem::rename(directory / "step-000000000041", directory / "best");
  EXPECT_EQ(error_of_read(directory / "best"), "");
}

}  // namespace wrong_file_test
}  // namespace lockstep::checkpoints
