// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "folder.hpp"
#include "report/tensorboard/tensorboard_writer.hpp"
#include "report/tensorboard/wire.hpp"
#include "support/program.hpp"

namespace lockstep::report {
namespace tensorboard_test {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string counting(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + step * i);
  return bytes;
}

// The records below are what TensorBoard 2.21's own RecordWriter makes of the same events.
const std::string kVersion = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c";
const std::string kStart = "100000000000000095fbfe1809000000000000f83f10ac023a020801713b788a";
const std::string kScalars =
    "290000000000000037ff5f0009000000000000f83f10ac022a1b0a0b0a046c6f7373150000803e0a0c0a0565706f63681500000040c23a29a"
    "a";
const std::string kHistogram =
    "6500000000000000ebd05a6909000000000000f83f10072a580a560a01772a5109000000000000f03f11000000000000104019000000000000"
    "0840210000000000001a402900000000004033403210000000000000044000000000000010403a100000000000000040000000000000f03f58"
    "9bd69e";

const std::string kImage =
    "1f00000000000000514b441809000000000000f83f10072a120a100a0173220b0802100518032203504e4701ca1f45";
const std::string kText =
    "2700000000000000bbe1b14609000000000000f83f10072a1a0a180a01744209080712004203617c624a080a060a04746578745387dedd";

double at_one_and_a_half() { return 1.5; }

/// A histogram with two buckets.
Histogram histogram(const std::string& name, std::int64_t step, const std::vector<float>& values) {
  Histogram counted = histogram_of(values, 2);
  counted.name = name;
  counted.step = step;
  return counted;
}

/// The only file of the folder.
std::string bytes_in(const Folder& folder) {
  EXPECT_EQ(folder.count(), 1U);
  return folder.read(std::filesystem::directory_iterator(folder.path())->path().filename());
}

TEST(Crc32cTest, GivesTheValuesOfRfc3720) {
  const std::string read_command =
      from_hex("01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000");
  const std::array<std::pair<std::string, std::uint32_t>, 7> rows = {{{std::string(32, '\0'), 0x8A9136AA},
                                                                      {std::string(32, '\xFF'), 0x62A8AB43},
                                                                      {counting(0, 1), 0x46DD794E},
                                                                      {counting(31, -1), 0x113FDB5C},
                                                                      {read_command, 0xD9963A56},
                                                                      {"123456789", 0xE3069283},
                                                                      {"", 0}}};
  for (const auto& [bytes, expected] : rows) EXPECT_EQ(crc32c(bytes), expected);
}

TEST(EventFrameTest, HasLengthAndMaskedChecksums) {
  const std::string frame = from_hex(kVersion);
  EXPECT_EQ(event_frame(frame.substr(12, 0x18)), frame);
}

TEST(TensorBoardWriterTest, WritesTheBytesOfTheFormat) {
  const Folder folder;
  TensorBoardWriter writer(folder.path(), 300, at_one_and_a_half);
  EXPECT_EQ(bytes_in(folder), from_hex(kVersion + kStart));
  writer.write(
      Record{.values = {{"step", std::int64_t{300}}, {"loss", 0.25}, {"note", "words"}, {"epoch", std::int64_t{2}}}});
  EXPECT_EQ(bytes_in(folder), from_hex(kVersion + kStart + kScalars)) << "each line is handed to the system at once";
  writer.write(histogram("w", 7, {1, 1.5, 4}));
  EXPECT_EQ(bytes_in(folder), from_hex(kVersion + kStart + kScalars + kHistogram));
  writer.write("s", 7, EncodedImage{.height = 2, .width = 5, .channels = 3, .bytes = "PNG"});
  writer.write("t", 7, MarkedText{"a|b"});
  EXPECT_EQ(bytes_in(folder), from_hex(kVersion + kStart + kScalars + kHistogram + kImage + kText));
}

TEST(TensorBoardWriterTest, SkipsWhatHasNoStepOrNoNumber) {
  const Folder folder;
  TensorBoardWriter writer(folder.path(), 300, at_one_and_a_half);
  writer.write(Record{.values = {{"loss", 0.25}}});
  writer.write(Record{.values = {{"step", std::int64_t{3}}, {"note", "words"}}});
  EXPECT_EQ(bytes_in(folder), from_hex(kVersion + kStart));
}

TEST(TensorBoardWriterTest, EachStartHasAFileOfItsOwnInTheOrderOfTime) {
  const Folder folder;
  const TensorBoardWriter first(folder.path(), 1, at_one_and_a_half);
  const TensorBoardWriter same_second(folder.path(), 1, at_one_and_a_half);
  const TensorBoardWriter later(folder.path(), 1, [] { return 10.0; });
  EXPECT_LT(first.path(), same_second.path());
  EXPECT_LT(same_second.path(), later.path());
  EXPECT_EQ(first.path().find(folder.path("events.out.tfevents.0000000001.")), 0U) << first.path();
  EXPECT_EQ(folder.count(), 3U);
}

TEST(TensorBoardWriterTest, AMissingFolderIsSaid) {
  const Folder folder;
  const std::string sentence = sentence_of([&] { TensorBoardWriter(folder.path("none"), 1); });
  EXPECT_NE(sentence.find("cannot be opened: No such file or directory"), std::string::npos) << sentence;
}

/// A Python that has TensorBoard, or "".
std::string python_with_tensorboard() {
  const char* const given = std::getenv("PYTHON");
  for (const std::string candidate : {given == nullptr ? "" : given, "python3"}) {
    if (!candidate.empty() && testing::run_shell(candidate + " -c 'import tensorboard'", 60).exit_code == 0) {
      return candidate;
    }
  }
  return "";
}

constexpr const char* kReader = R"(
import sys
from base64 import b64encode
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "images": 0, "tensors": 0})
a.Reload()
for tag in a.Tags()["scalars"]:
    print(tag, *[(e.step, e.value) for e in a.Scalars(tag)])
for tag in a.Tags()["histograms"]:
    print(tag, *[(e.step, e.histogram_value.num, list(e.histogram_value.bucket)) for e in a.Histograms(tag)])
for tag in a.Tags()["images"]:
    print(tag, *[(e.step, e.width, e.height, b64encode(e.encoded_image_string).decode()) for e in a.Images(tag)])
for tag in a.Tags()["tensors"]:
    print(tag, *[(e.step, e.tensor_proto.string_val[0]) for e in a.Tensors(tag)])
)";

TEST(TensorBoardWriterTest, TensorBoardReadsItBackAcrossAResume) {
  const std::string python = python_with_tensorboard();
  if (python.empty()) GTEST_SKIP() << "no Python with tensorboard (PYTHON names one)";
  const Folder folder;
  const Folder scripts;
  scripts.write("read.py", kReader);
  {
    TensorBoardWriter first(folder.path(), 1, [] { return 100.0; });
    for (std::int64_t step = 1; step <= 4; ++step)
      first.write(Record{.values = {{"step", step}, {"loss", 1.0 / double(step)}}});
  }
  TensorBoardWriter resumed(folder.path(), 3, [] { return 200.0; });  // steps 3 and 4 were lost
  resumed.write(Record{.values = {{"step", std::int64_t{3}}, {"loss", 8.0}}});
  resumed.write(histogram("weights", 3, {0, 1, 4}));
  const EncodedImage picture = png_of({.height = 1, .width = 2, .pixels = {0, 0, 0, 255, 255, 255}});
  resumed.write("sample", 3, picture);
  resumed.write("caption", 3, MarkedText{"7, predicted as 1"});
  const auto outcome =
      testing::run_shell(python + " " + scripts.path("read.py") + " " + folder.path() + " 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output,
            "loss (1, 1.0) (2, 0.5) (3, 8.0)\n"
            "weights (3, 3.0, [2.0, 1.0])\n"
            "sample (3, 2, 1, '" +
                base64_of(picture.bytes) + "')\ncaption (3, b'7, predicted as 1')\n");
}

}  // namespace tensorboard_test
}  // namespace lockstep::report
