// SPDX-License-Identifier: BSD-3-Clause
// The catalogue of bad input, row by row: what `ckpt` says and returns. What concerns a run alone (shapes, optimizer,
// data set, generators) is tested where runs are, in tests/multirank/engine.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "crafted.hpp"
#include "run.hpp"

namespace lockstep::ckpt {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// A folder to make bad input in; `path` names what the command is given, `prepare` what happens in a child before.
struct Workshop {
  TemporaryFolder folder;
  std::string path = folder / "file";
  std::function<bool()> prepare = {};

  void put(const std::string& bytes) const { put_bytes(path, bytes); }
  /// A whole checkpoint; the bytes of its state file.
  std::string save(std::int64_t step = 10, const std::string& run = "") {
    path = checkpoints::write(folder / "ckpt", step, small_state(step, run));
    return bytes_of(path + "/state.h5");
  }
  void save_in_parts(std::int64_t step, std::uint32_t count = 2) {
    const std::string staged = checkpoints::stage(folder / "ckpt", step);
    for (std::uint32_t i = 0; i < count; ++i) checkpoints::write_part(staged, step, small_state(step), {i, count});
    path = checkpoints::commit(folder / "ckpt", staged, step, {.parts = count});
  }
  /// One of its bytes changed.
  void put_flipped(std::string bytes, std::size_t position) const {
    bytes[position] = static_cast<char>(bytes[position] ^ 1);
    put(bytes);
  }
};

/// Makes the bad input; the words are for `ckpt`, with `FILE` for the workshop's path.
struct Row {
  std::string id;  ///< name in the catalogue, and of the case where there are several
  std::function<void(Workshop&)> make;
  Words words;
  Exit code;
  Words parts;  ///< parts of the expected message; `FILE` likewise
};

inline void PrintTo(const Row& row, std::ostream* out) { *out << row.id; }

inline const Words kVerify = {"verify", "FILE"};
inline const Words kConvert = {"convert", "FILE", "--to", "DIR/out/x.npz"};

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t position = text.find(what); position != std::string::npos;
       position = text.find(what, position + by.size())) {
    text.replace(position, what.size(), by);
  }
  return text;
}

class CatalogueTest : public ::testing::TestWithParam<Row> {};

inline void expect_row(const Row& row) {
  Workshop shop;
  row.make(shop);
  const auto filled = [&shop](const std::string& text) {
    return replaced(replaced(text, "FILE", shop.path), "DIR", shop.folder.path());
  };
  Words words;
  for (const std::string& word : row.words) words.push_back(filled(word));
  const Ran ran = shop.prepare ? run_in_child(words, shop.prepare) : run_captured(words);
  if (ran.code == kNotAllowed) GTEST_SKIP() << "not allowed here";
  EXPECT_EQ(ran.code, static_cast<int>(row.code)) << ran.output;
  for (const std::string& part : row.parts) {
    EXPECT_NE(ran.output.find(filled(part)), std::string::npos) << filled(part) << "\nis not in\n" << ran.output;
  }
  // Nothing of what failed stays behind.
  if (row.words[0] == "convert") {
    EXPECT_TRUE(fs::is_empty(shop.folder / "out"));
  }
}

inline std::string name_of_row(const ::testing::TestParamInfo<Row>& test) { return test.param.id; }

}  // namespace lockstep::ckpt
