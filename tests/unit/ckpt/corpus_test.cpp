// SPDX-License-Identifier: BSD-3-Clause
// Damage of every kind to every class of bytes, seen through the commands: each case is refused by what reads those
// bytes, with the region named, and what is printed all the same is what the whole file says. No byte of a checkpoint
// is without a digest, so there is no damage that does not matter.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "checkpoints/store/store.hpp"
#include "crafted.hpp"
#include "run.hpp"
#include "support/program.hpp"

namespace lockstep::ckpt {
namespace corpus_test {

/// Bytes [begin, end) of one class, and what a sentence about them names.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string name;
};

using Classes = std::map<std::string, std::vector<Range>>;

Classes classes_of(const std::string& file) {
  const std::size_t index = envelope_of(file).index_offset;
  const auto places = places_of(file);
  Classes classes;
  // A fault in the envelope's first fields has words of its own: another kind, version, flags or size.
  classes["envelope"] = {{0, 16, "it"}, {16, 128, "its envelope"}, {128, checkpoints::kEnvelopeBytes, "its envelope"}};
  classes["index"] = {{index, file.size(), "its index"}};
  for (const auto& piece : pieces_of(places, index)) {
    const bool is_metadata = piece.array == checkpoints::kNoArray;
    classes[is_metadata ? "metadata" : "payload"].push_back(
        {piece.offset, piece.offset + piece.nbytes,
         is_metadata ? "HDF5 metadata" : "array " + places[piece.array].path});
  }
  return classes;
}

/// Draws damage; the same seed draws the same.
class Vandal {
 public:
  explicit Vandal(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }

  /// @param text  what was done, for messages
  /// @param name  what the refusal must name
  std::string damage(const std::string& file, const Classes& classes, std::string& text, std::string& name) {
    std::string bad = file;
    const int kind = static_cast<int>(below(5));
    if (kind == 4) {
      const std::size_t count = 1 + below(5000);
      for (std::size_t i = 0; i < count; ++i) bad += byte();
      text = std::to_string(count) + " bytes appended";
      name = " bytes were appended at byte " + std::to_string(file.size());
      return bad;
    }
    const auto& ranges = std::next(classes.begin(), static_cast<std::ptrdiff_t>(below(classes.size())))->second;
    const Range& range = ranges[below(ranges.size())];
    const std::size_t position = range.begin + below(range.end - range.begin);
    const std::size_t count = 1 + below(std::min<std::size_t>(range.end - position, 600));
    name = range.name;
    text = " at byte " + std::to_string(position) + " (" + range.name + ")";
    if (kind == 3) {
      text = "cut" + text;
      name = position == 0 ? "the file is empty" : "truncated";
      return file.substr(0, position);
    }
    if (kind == 0) {
      bad[position] = static_cast<char>(bad[position] ^ static_cast<char>(1 << below(8)));
      text = "a bit flipped" + text;
    } else {
      for (std::size_t i = position; i < position + count; ++i) bad[i] = kind == 1 ? '\0' : byte();
      text = std::to_string(count) + (kind == 1 ? " bytes zeroed" : " bytes of noise") + text;
    }
    return bad;
  }

 private:
  char byte() { return static_cast<char>(random_() & 0xFF); }
  std::mt19937_64 random_;
};

const char* const kCommands[] = {"verify", "hash", "ls", "info"};

/// The output that the commands say of the file while it is whole.
std::map<std::string, Ran> runs_of(const std::string& path) {
  std::map<std::string, Ran> runs;
  for (const char* const command : kCommands) runs[command] = run_captured({command, path});
  return runs;
}

/// @param is_head  the damage may make another kind, version or set of features of the file
void expect_refused(const std::string& path, const std::map<std::string, Ran>& whole, const std::string& name,
                    bool is_head) {
  ::alarm(20);  // a command that hangs ends the test
  const Ran verify = run_captured({"verify", path});
  const bool is_damaged = verify.code == static_cast<int>(Exit::corrupt);
  EXPECT_TRUE(is_damaged || (is_head && (verify.code == static_cast<int>(Exit::usage) ||
                                         verify.code == static_cast<int>(Exit::incompatible))))
      << verify.code << verify.output;
  EXPECT_NE(verify.output.find(name), std::string::npos) << verify.output << "does not name " << name;
  EXPECT_EQ(run_captured({"hash", path}).code, verify.code);
  for (const std::string command : {"ls", "info"}) {
    const Ran ran = run_captured({command, path});
    EXPECT_TRUE(ran.code == verify.code || (ran.code == 0 && ran.output == whole.at(command).output))
        << command << " " << ran.code << ran.output;
  }
  ::alarm(0);
}

std::size_t cases() { return testing::is_long_run() ? 2000 : 200; }

TEST(CorpusTest, AFileThatIsDamagedIsRefused) {
  const TemporaryFolder folder;
  checkpoints::Archive archive = small_state(10);
  archive.put("/model/params/fc.weight", checkpoints::array_of(DType::float32, {2000}, std::vector<float>(2000, 1.5F)));
  const std::string file = bytes_of(checkpoints::write(folder / "ckpt", 10, archive) + "/state.h5");
  const std::string path = folder / "x";
  put_bytes(path, file);
  const auto whole = runs_of(path);
  for (const auto& [command, ran] : whole) ASSERT_EQ(ran.code, 0) << command << ran.output;
  const Classes classes = classes_of(file);
  ASSERT_EQ(classes.size(), 4U);
  Vandal vandal(testing::test_seed());
  for (std::size_t i = 0; i < cases(); ++i) {
    std::string text;
    std::string name;
    const std::string bad = vandal.damage(file, classes, text, name);
    if (bad == file) continue;  // zeros where there were zeros
    SCOPED_TRACE(text);
    put_bytes(path, bad);
    const bool is_head = bad.compare(0, 16, file, 0, 16) != 0;
    expect_refused(path, whole, is_head && bad.size() == file.size() ? "it" : name, is_head);
    if (HasFailure()) break;
  }
}

TEST(CorpusTest, AShardOrManifestThatIsDamagedIsRefused) {
  const TemporaryFolder folder;
  const std::string staged = checkpoints::stage(folder.path(), 10);
  for (const std::uint32_t part : {0U, 1U}) checkpoints::write_part(staged, 10, small_state(10), {part, 2});
  const std::string checkpoint = checkpoints::commit(folder.path(), staged, 10, {.parts = 2});
  const auto whole = runs_of(checkpoint);
  for (const auto& [command, ran] : whole) ASSERT_EQ(ran.code, 0) << command << ran.output;
  Vandal vandal(testing::test_seed() + 1);
  for (std::size_t i = 0; i < cases() / 4; ++i) {
    const std::size_t which = vandal.below(3);
    const std::string path = checkpoint + "/" +
                             (which == 2   ? "MANIFEST.json"
                              : which == 1 ? "shard-00001-of-00002.h5"
                                           : "shard-00000-of-00002.h5");
    const std::string file = bytes_of(path);
    std::string text;
    std::string name;
    // The line end behind the manifest is the only byte that nobody needs.
    const Classes classes = which == 2 ? Classes{{"manifest", {{0, file.size() - 2, "manifest"}}}} : classes_of(file);
    const std::string bad = vandal.damage(file, classes, text, name);
    if (bad == file) continue;
    SCOPED_TRACE(path + ": " + text);
    put_bytes(path, bad);
    const bool is_head = which != 2 && bad.compare(0, 16, file, 0, 16) != 0;
    expect_refused(checkpoint, whole, which == 2 ? "" : path.substr(path.rfind('/')), is_head);
    put_bytes(path, file);
    if (HasFailure()) break;
  }
}

}  // namespace corpus_test
}  // namespace lockstep::ckpt
