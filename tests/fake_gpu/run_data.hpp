// SPDX-License-Identifier: BSD-3-Clause
// The data that rows of runs.txt name in braces.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fake_gpu/fake_run.hpp"
#include "support/folders.hpp"
#include "support/npy.hpp"

namespace lockstep::testing {

/// The data lie in a folder of a test.
class RowData {
 public:
  explicit RowData(const TemporaryFolder& folder) : folder_(&folder) {}

  /// @param out  the path for {out}
  std::string filled_in(std::string text, const std::string& out) {
    replace(text, "{source}", [] { return source_root().string(); });
    replace(text, "{golden}", [] { return golden_folder().string(); });
    replace(text, "{fields}", [] { return golden("fields/files").string(); });
    replace(text, "{out}", [&] { return out; });
    replace(text, "{run}", [this] { return finished_run(); });
    replace(text, "{values}", [this] { return images("values"); });
    replace(text, "{masks}", [this] { return images("masks"); });
    replace(text, "{weighted}", [this] { return weighted_numbers(); });
    return text;
  }

 private:
  static constexpr int kImages = 24;
  static constexpr int kSide = 32;

  static void replace(std::string& text, const std::string& name, const std::function<std::string()>& value) {
    const std::string filled = text.find(name) == std::string::npos ? "" : value();
    for (std::size_t begin = text.find(name); begin != std::string::npos; begin = text.find(name)) {
      text.replace(begin, name.size(), filled);
    }
  }

  /// The run of one process on the CPU.
  std::string finished_run() {
    if (run_.empty()) {
      run_ = folder_->path("finished");
      const ProgramResult outcome =
          run_ranks(1,
                    kFakeRun +
                        "--model.name=resnet18 --model.width=4 --ema.kind=ema "
                        "--train.max_steps=3 --train.global_batch_size=16 --train.precision=fp64 --run.dir=" +
                        run_,
                    120, kKernelsOfTheFake);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    }
    return run_;
  }

  /// A list of images, each with a number or with the image of its classes.
  std::string images(const std::string& name) const {
    std::string list;
    for (int i = 0; i < kImages; ++i) {
      const std::string file = name + std::to_string(i);
      folder_->write(file + ".ppm", "P6 32 32 255\n" + pixels(i, 3, 256));
      folder_->write(file + ".pgm", "P5 32 32 255\n" + pixels(i, 1, 3));
      list += file + ".ppm " + (name == "masks" ? file + ".pgm" : std::to_string(i % 7)) + "\n";
    }
    folder_->write(name + ".txt", list);
    return folder_->path(name + ".txt");
  }

  /// A folder with arrays of inputs, targets and weights.
  std::string weighted_numbers() const {
    std::vector<float> inputs, targets, weights;
    for (int i = 0; i < kImages; ++i) {
      for (int j = 0; j < 3; ++j) inputs.push_back(static_cast<float>((i * 5 + j * 3) % 7) - 3);
      targets.push_back(static_cast<float>(i % 5));
      weights.push_back(static_cast<float>(i % 4));
    }
    const std::filesystem::path folder = folder_->path("weighted");
    std::filesystem::create_directories(folder);
    write_npy(folder / "x.npy", {kImages, 3}, inputs);
    write_npy(folder / "y.npy", {kImages}, targets);
    write_npy(folder / "w.npy", {kImages}, weights);
    return folder.string();
  }

  static std::string pixels(int image, int channels, int values) {
    std::string bytes;
    for (int i = 0; i < kSide * kSide * channels; ++i) bytes += static_cast<char>((image * 37 + i * 11 / 5) % values);
    return bytes;
  }

  const TemporaryFolder* folder_;
  std::string run_;
};

}  // namespace lockstep::testing
