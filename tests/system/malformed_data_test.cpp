// SPDX-License-Identifier: BSD-3-Clause
// Malformed lists, folders, CIFAR files, images and arrays, one by one through the program: each gets its exit code on
// every rank and one sentence that names the file, the fault and the remedy.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <sys/stat.h>

#include "support/folders.hpp"
#include "support/npy.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace malformed_data_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;
using testing::write_file;

constexpr int kData = 3;
constexpr double kLimit_s = 60;

enum class DamageResult { refuse, accept, either };

/// Data under which the program is run.
struct Case {
  std::string name;
  std::string arguments;
  std::string file;                // that the sentence names
  std::vector<std::string> words;  // words of the sentence
  DamageResult verdict = DamageResult::refuse;
};

std::string ppm(int value, int side = 8) {
  const std::string size = std::to_string(side);
  return "P6 " + size + " " + size + " 255\n" +
         std::string(static_cast<std::size_t>(side * side * 3), static_cast<char>(value));
}

std::string pgm(int value, int side = 8) {
  const std::string size = std::to_string(side);
  return "P5 " + size + " " + size + " 255\n" +
         std::string(static_cast<std::size_t>(side * side), static_cast<char>(value));
}

std::string cifar_records(int count, int label_bytes, int label = 0) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += std::string(static_cast<std::size_t>(label_bytes), static_cast<char>(label)) + std::string(3072, '\x40');
  }
  return bytes;
}

/// Writes the files of all cases, each below a folder of its own.
class CaseWriter {
 public:
  explicit CaseWriter(const testing::TemporaryFolder& folder) : folder_(folder) {
    write_lists();
    write_targets();
    write_folders();
    write_cifar();
    write_images();
    write_golden();
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  /// A new folder with four good images, a/0.ppm, a/1.ppm, b/2.ppm and b/3.ppm.
  std::string new_folder(const std::string& name) {
    std::string path = folder_.path(std::to_string(cases_.size()) + "-" + name);
    for (int i = 0; i < 4; ++i) write(path + (i < 2 ? "/a/" : "/b/") + std::to_string(i) + ".ppm", ppm(50 * i));
    return path;
  }
  static void write(const std::string& path, const std::string& bytes) {
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, bytes);
  }

  void add(const std::string& name, const std::string& source, const std::string& path, const std::string& more,
           const std::string& file, std::vector<std::string> words) {
    cases_.push_back({.name = source + ": " + name,
                      .arguments = "--data.name=" + source + " '--data.path=" + path + "' " + more +
                                   (source == "folder" ? " --data.cache=off" : ""),
                      .file = file,
                      .words = std::move(words)});
  }

  /// The validation split of the last case is used.
  void evaluate_last() { cases_.back().arguments += " --eval.every=end"; }

  /// @param text  of the list
  void list(const std::string& name, const std::string& text, std::vector<std::string> words,
            const std::string& more = "") {
    const std::string path = new_folder("list") + "/train.txt";
    write(path, text);
    add(name, "list", path, more, path, std::move(words));
  }
  /// The list has a line with a path that is malformed, which `make(path)` creates.
  template <class Make>
  void listed(const std::string& name, std::vector<std::string> words, const Make& make) {
    const std::string folder = new_folder("listed");
    write(folder + "/train.txt", "a/0.ppm 0\na/1.ppm 1\nbad.ppm 0\n");
    make(folder + "/bad.ppm");
    add(name, "list", folder + "/train.txt", "", folder + "/bad.ppm", std::move(words));
  }

  void write_lists() {
    const std::string good = "a/0.ppm 0\na/1.ppm 1\n";
    list("empty", "", {"contains no samples", "PATH LABEL"});
    list("comments alone", "# a\n\n  \n", {"contains no samples"});
    list("no label", good + "a/2.ppm\n", {"line 3", "has no label", "data.unlabeled"});
    list("a word as label", good + "\na/2.ppm cat\n", {"line 4", "'cat'", "not an integer"});
    list("a fraction as label", "a/0.ppm 0.5\n", {"line 1", "'0.5'", "data.target = real"});
    list("a negative label", good + "a/0.ppm -1\n", {"line 3", "-1"}, "--data.classes=3");
    list("a label beyond the classes", good + "a/0.ppm 3\n", {"line 3", "3", "[0, 2]"}, "--data.classes=3");
    list("a label beyond all limits", "a/0.ppm 16777216\n", {"line 1", "16777216"});
    list("a label beyond 64 bits", "a/0.ppm 99999999999999999999\n", {"line 1", "99999999999999999999"});
    list("an empty label of several", "a/0.ppm 1,,2\n", {"line 1", "1,,2"});
    list("a zero byte", good + std::string("a/0\0.ppm 0\n", 11), {"line 3", "zero byte", "UTF-8"});
    list("UTF-16",
         std::string("\xFF\xFE"
                     "a\0 \0"
                     "0\0\n\0",
                     10),
         {"line 1", "zero byte", "UTF-8"});
    list("only validation", good, {"data.val_fraction"}, "--data.val_fraction=1");
    cases_.back().file = "";
    list("a missing list for validation", good, {"No such file"}, "--data.val_path=none.txt");
    cases_.back().file = "none.txt";
    evaluate_last();
    const std::string names = new_folder("names");
    write(names + "/none.txt", "");
    write(names + "/one.txt", "a\n");
    list("no names of classes", good, {"contains no class names"}, "--data.class_names=" + names + "/none.txt");
    cases_.back().file = names + "/none.txt";
    list("one name of two classes", good, {"line 2", "data.class_names = 1"},
         "--data.class_names=" + names + "/one.txt");
    const std::string missing = folder_.path("missing.txt");
    add("missing", "list", missing, "", missing, {"No such file", "data.path"});
    add("a folder", "list", folder_.path(), "", folder_.path(), {"is not a file", "data.path"});
    const std::string pipe = new_folder("pipe") + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    add("a pipe", "list", pipe, "", pipe, {"is not a file", "data.path"});
    const std::string excluded = new_folder("excluded");
    write(excluded + "/train.txt", good);
    add("all excluded", "list", excluded + "/train.txt", "--data.exclude=" + excluded + "/train.txt",
        excluded + "/train.txt", {"data.exclude"});
    add("a missing list of exclusions", "list", excluded + "/train.txt", "--data.exclude=" + excluded + "/none",
        excluded + "/none", {"No such file"});
    listed("a missing image", {"No such file", "exclude"}, [](const std::string&) {});
    listed("an empty image", {"is empty", "exclude"}, [](const std::string& path) { write(path, ""); });
    listed("a folder as image", {"not a regular file"}, [](const std::string& path) { fs::create_directory(path); });
    listed("a pipe as image", {"not a regular file"}, [](const std::string& path) { mkfifo(path.c_str(), 0600); });
    listed("a device as image", {"not a regular file"},
           [](const std::string& path) { fs::create_symlink("/dev/zero", path); });
    listed("a link to itself", {"Too many levels"}, [](const std::string& path) { fs::create_symlink(path, path); });
    listed("a cut image", {"truncated", "exclude"}, [](const std::string& path) { write(path, ppm(1).substr(0, 30)); });
    listed("another size", {"10 x 10", "resize"}, [](const std::string& path) { write(path, ppm(1, 10)); });
  }

  void mask(const std::string& name, const std::string& bytes, std::vector<std::string> words,
            const std::string& more = "") {
    const std::string folder = new_folder("mask");
    write(folder + "/good.pgm", pgm(1));
    write(folder + "/train.txt", "a/0.ppm good.pgm\na/1.ppm bad.pgm\n");
    if (!bytes.empty()) write(folder + "/bad.pgm", bytes == "empty" ? "" : bytes);
    add("mask: " + name, "list", folder + "/train.txt", "--data.target=mask --model.name=unet " + more,
        folder + "/bad.pgm", std::move(words));
  }

  void write_targets() {
    for (const char* const number : {"nan", "inf", "1e999", "five", "-"}) {
      list("the number " + std::string(number), "a/0.ppm 1.5\na/1.ppm " + std::string(number) + "\n",
           {"line 2", "'" + std::string(number) + "'", "not a finite number"}, "--data.target=real");
    }
    list("two numbers", "a/0.ppm 1.5\na/1.ppm 1,2\n", {"line 2", "2 numbers", "the first image has 1"},
         "--data.target=real");
    list("a missing number", "a/0.ppm 1.5,2\na/1.ppm 1,\n", {"line 2", "''", "not a finite number"},
         "--data.target=real");
    list("no number", "a/0.ppm 1.5\na/1.ppm\n", {"line 2", "has no label"}, "--data.target=real");
    list("no mask", "a/0.ppm\n", {"line 1", "has no mask", "PATH MASK"}, "--data.target=mask");
    const std::string folder = new_folder("sets");
    write(folder + "/train.txt", "a/0.ppm 0\na/1.ppm 1\n");
    write(folder + "/val.txt", "a/0.ppm 0,1\n");
    add("several labels for validation alone", "list", folder + "/train.txt", "--data.val_path=" + folder + "/val.txt",
        folder + "/val.txt", {"several labels", "training part"});
    evaluate_last();
    write(folder + "/beyond.txt", "a/0.ppm 2\n");
    add("a new label for validation", "list", folder + "/train.txt", "--data.val_path=" + folder + "/beyond.txt",
        folder + "/beyond.txt", {"line 1", "2", "[0, 1]"});
    evaluate_last();
    mask("missing", "", {"No such file"});
    mask("empty", "empty", {"is empty"});
    mask("of another size", pgm(0, 9), {"9 x 9", "8 x 8"});
    mask("cut", pgm(0).substr(0, 20), {"truncated"});
    mask("of colors", ppm(0), {"3 channels", "convert"});
    mask("with a new class", pgm(7), {"class 7", "row 0", "data.classes"}, "--data.classes=3");
    mask("of text", "P5 is no mask", {"header is damaged"});
  }

  void write_folders() {
    const std::string missing = folder_.path("missing");
    add("missing", "folder", missing, "", missing, {"is not a folder", "data.path"});
    const std::string flat = new_folder("flat");
    add("no class folders", "folder", flat + "/a", "", flat + "/a", {"no class folders", "one subfolder"});
    add("a file", "folder", flat + "/a/0.ppm", "", flat + "/a/0.ppm", {"is not a folder"});
    add("a missing folder for validation", "folder", flat, "--data.val_path=" + missing, missing, {"No such file"});
    evaluate_last();
    const std::string empty = new_folder("empty");
    write(empty + "/c/notes.txt", "no image");
    add("an empty class", "folder", empty, "", empty + "/c", {"'c'", "no images", "data.allow_empty"});
    add("no images", "folder", empty, "--data.unlabeled=true --data.path=" + empty + "/c", empty + "/c",
        {"contains no images"});
    const std::string val = new_folder("val");
    write(val + "/train/a/0.ppm", ppm(0));
    write(val + "/val/z/0.ppm", ppm(0));
    add("a new class for validation", "folder", val, "", val + "/val/z", {"'z'", "training part"});
    evaluate_last();
    const std::string tiff = new_folder("tiff");
    write(tiff + "/a/scan.TIFF", "II*");
    add("TIFF", "folder", tiff, "", tiff + "/a/scan.TIFF", {"TIFF images are not supported", "mogrify"});
    const std::string line_break = new_folder("line-break");
    write(line_break + "/c\nd/0.ppm", ppm(0));
    add("a line break in a class", "folder", line_break, "", line_break, {"line break", "rename"});
  }

  /// Good files, and one other.
  void cifar(const std::string& name, const std::string& source, const std::string& file, const std::string& bytes,
             std::vector<std::string> words, const std::string& more = "") {
    const std::string folder = new_cifar(source);
    write(folder + "/" + file, bytes);
    add(name, source, folder, more, folder + "/" + file, std::move(words));
  }
  std::string new_cifar(const std::string& source) {
    std::string folder = folder_.path(std::to_string(cases_.size()) + "-" + source);
    if (source == "cifar100") {
      for (const char* file : {"train.bin", "test.bin"}) write(folder + "/" + file, cifar_records(2, 2));
      return folder;
    }
    for (int i = 1; i <= 5; ++i) write(folder + "/data_batch_" + std::to_string(i) + ".bin", cifar_records(1, 1));
    write(folder + "/test_batch.bin", cifar_records(1, 1));
    return folder;
  }

  void write_cifar() {
    const std::string third = "data_batch_3.bin";
    cifar("one byte less", "cifar10", third, cifar_records(2, 1).substr(1), {"6145", "3073", "download"});
    cifar("one byte more", "cifar10", third, cifar_records(1, 1) + "x", {"3074", "3073"});
    cifar("empty", "cifar10", "test_batch.bin", "", {"is empty"});
    evaluate_last();
    cifar("a label beyond", "cifar10", third, cifar_records(1, 1) + cifar_records(1, 1, 10),
          {"record 1", "label 10", "[0, 9]"});
    cifar("a fine label beyond", "cifar100", "test.bin", cifar_records(1, 2, 100), {"record 0", "label 100", "99"});
    evaluate_last();
    cifar("a coarse label beyond", "cifar100", "train.bin", cifar_records(3, 2, 20), {"record 0", "label 20", "19"},
          "--data.cifar_labels=coarse");
    cifar("one byte less", "cifar100", "train.bin", cifar_records(1, 2).substr(1), {"3073", "3074"});
    cifar("too few names", "cifar10", "batches.meta.txt", "airplane\nbird\n", {"2 class names", "10 classes"});
    cifar("an empty name", "cifar10", "batches.meta.txt", "airplane\n\nbird\n", {"line 2", "empty"});
    for (const std::string& file : {third, std::string("test_batch.bin")}) {
      const std::string folder = new_cifar("cifar10");
      fs::remove(folder + "/" + file);
      add("no file " + file, "cifar10", folder, "", folder, {"has no file " + file, "download"});
      evaluate_last();
    }
    const std::string empty = new_folder("no-cifar");
    add("no files", "cifar10", empty, "", empty, {"has no file data_batch_1.bin", "data.path"});
    add("no files", "cifar100", empty, "", empty, {"has no file train.bin", "data.path"});
    write(empty + "/python/data_batch_1", "\x80\x02}q");
    add("the Python version", "cifar10", empty + "/python", "", empty + "/python", {"Python version", "binary"});
    for (const bool is_pipe : {false, true}) {
      const std::string folder = new_cifar("cifar10");
      const std::string path = folder + "/" + third;
      fs::remove(path);
      ASSERT_EQ(is_pipe ? mkfifo(path.c_str(), 0600) : mkdir(path.c_str(), 0700), 0);
      add(is_pipe ? "a pipe" : "a folder", "cifar10", folder, "", path, {"is not a file"});
    }
  }

  /// A folder with good images and one other, in the class b.
  void image(const std::string& name, const std::string& file, const std::string& bytes, std::vector<std::string> words,
             DamageResult verdict = DamageResult::refuse) {
    const std::string folder = new_folder("image");
    write(folder + "/b/" + file, bytes);
    add(name, "folder", folder, "--data.transform=resize,size=8,8 --data.transform=normalize", folder + "/b/" + file,
        std::move(words));
    cases_.back().verdict = verdict;
  }

  void write_images() {
    using namespace std::string_literals;
    image("GIF", "x.png", "GIF89a and more", {"GIF images are not supported", "mogrify"});
    image("TIFF", "x.png", "II*\0 and more"s, {"TIFF images are not supported"});
    image("HEIC", "x.jpg", "\0\0\0\x18"s + "ftypheic and more", {"HEIC images are not supported"});
    image("text pixels", "x.ppm", "P3 1 1 255 0 0 0\n", {"PNM (P3) images are not supported"});
    image("16 bits", "x.ppm", "P6 2 2 65535\n" + std::string(24, 'x'), {"65535", "only 255", "convert"});
    image("PPM, cut", "x.ppm", "P6 8 8 255\nxy", {"13 bytes", "requires 203", "truncated"});
    image("PPM, huge", "x.ppm", "P6 1000000000 1000000000 255\nxy", {"1000000000 x 1000000000", "data.max_image_mb"});
    image("PPM, huge number", "x.ppm", "P6 99999999999 1 255\nxy", {"header is damaged"});
    image("PPM, no pixels", "x.ppm", "P6 0 8 255\n", {"0 x 8"});
    image("PPM, a word", "x.ppm", "P6 a 8 255\n", {"header is damaged"});
    image("PPM, only the start", "x.ppm", "P6", {"truncated"});
    image("PPM, a comment without end", "x.ppm", "P6 # comment", {"truncated"});
    image("PNG, only the start", "x.png", "\x89PNG\r\n\x1A\n", {"PNG header is damaged"});
    image("JPEG, only the start", "x.jpg", "\xFF\xD8\xFF", {"truncated"});
    image("JPEG, only the end", "x.jpg", "\xFF\xD8\xFF\xD9", {"has no header"});
    image("WebP, only the start", "x.webp", "RIFF\x10\0\0\0WEBPVP8 "s, {"WebP"});
    image("BMP, only the start", "x.bmp", "BM", {"truncated"});
    image("BMP of OS/2", "x.bmp", "BM" + std::string(12, '\0') + "\x0C\0\0\0"s + std::string(20, '\0'), {"OS/2"});
    image("BMP with 8 bits", "x.bmp",
          "BM" + std::string(12, '\0') + "\x28\0\0\0\x08\0\0\0\x08\0\0\0\x01\0\x08\0"s + std::string(30, '\0'),
          {"8 bits", "convert"});
    image("text", "x.jpg", "This is no image.", {"not an image of a supported format", "exclude"});
    image("one byte", "x.png", "\x89", {"not an image"});
    image("a good image", "x.ppm", ppm(7), {}, DamageResult::accept);
  }

  /// The golden files with a verdict, and good golden images that are damaged by drawn numbers.
  void write_golden() {
    if (!fs::is_directory(testing::golden("data/malformed"))) return;
    const auto document = nlohmann::json::parse(testing::read_golden("data/malformed.json"));
    for (const auto& entry : document.at("verdicts")) {
      const std::string source = entry.at("source");
      const std::string path = testing::golden("data/" + entry.at("file").get<std::string>());
      const auto words = entry.at("message_names").get<std::vector<std::string>>();
      const bool is_lzf = path.ends_with("h5_lzf.h5");  // the filter of h5py, which is read
      const std::string verdict = is_lzf ? "accept" : entry.at("verdict");
      const std::size_t before = cases_.size();
      if (source == "image") {
        image("", fs::path(path).filename(), testing::read_file(path), words);
      } else if (source == "cifar10") {
        cifar("", source, "data_batch_2.bin", testing::read_file(path), words);
      } else if (source == "folder") {
        // Faults of a part are found if it is used.
        add("", source, path, fs::exists(path + "/val") ? "--eval.every=end" : "", path, words);
      } else if (source == "list") {
        // Two lists are sound; the first of their images that is not decides the sentence.
        const bool is_sound = path.ends_with("missing.txt") || path.ends_with("escape.txt");
        add("", source, path, "--data.classes=3", is_sound ? "" : path, is_sound ? std::vector<std::string>{} : words);
      } else if (source == "hdf5") {
        add("", source, path, "--data.classes=4", path, words);
      } else if (source == "npz") {
        add("", "npy", path, "--model.name=mlp", path, words);
      } else if (source == "npy") {
        const std::string arrays = folder_.path(std::to_string(cases_.size()) + "-npy");
        write(arrays + "/x.npy", testing::read_file(path));
        testing::write_npy(arrays + "/y.npy", {3}, {0, 1, 2});
        add("", source, arrays, "--model.name=mlp", arrays + "/x.npy", words);
      }
      if (cases_.size() == before) continue;  // another source
      cases_.back().name += entry.at("file");
      cases_.back().verdict = verdict == "accept"   ? DamageResult::accept
                              : verdict == "either" ? DamageResult::either
                                                    : DamageResult::refuse;
    }
    write_damaged(testing::golden("data/images"));
  }

  void write_damaged(const fs::path& images) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(images)) {
      if (entry.is_regular_file() && entry.path().extension() != ".npy") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::mt19937_64 random(testing::test_seed());
    const auto below = [&random](std::size_t end) {
      return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
    };
    for (const fs::path& file : files) {
      std::string bytes = testing::read_file(file);
      const bool is_cut = below(2) == 0;
      if (is_cut) {
        bytes.resize(below(bytes.size()));
      } else {
        for (std::size_t i = below(8) + 1; i > 0; --i) bytes[below(bytes.size())] = static_cast<char>(below(256));
      }
      image((is_cut ? "cut: " : "changed: ") + file.filename().string(), file.filename(), bytes, {},
            DamageResult::either);
    }
  }

  const testing::TemporaryFolder& folder_;
  std::vector<Case> cases_;
};

/// The sentence has a part after its semicolon or names what is required.
bool states_a_remedy(const std::string& sentence) {
  const std::vector<std::string> words = {"; ", " must ", "correct", "replace", "exclude"};
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return sentence.find(word) != std::string::npos; });
}

class MalformedDataTest : public ::testing::TestWithParam<int> {
 protected:
  void expect_verdict(const Case& one) {
    SCOPED_TRACE(one.name + "\n" + one.arguments);
    fs::remove_all(folder_ / "run");
    // The limit of 8 GB makes a large request for memory fail; LibTorch reserves addresses, too.
    const auto names = [&one](const char* text) { return one.arguments.find(text) != std::string::npos; };
    const std::string model = names("--model.name=") ? "" : "--model.channels=4 --model.hidden=8 ";
    const bool is_divided = names("--data.name=folder") || names("--data.name=list") || names("--data.name=hdf5") ||
                            names("--data.name=npy");
    const ProgramResult outcome = run_ranks(
        GetParam(),
        "--eval.every=never --data.workers=0 --train.global_batch_size=2 --train.max_steps=1 " + model +
            (is_divided ? "--data.val_fraction=0 " : "") + "--run.dir=" + folder_.path("run") + " " + one.arguments,
        kLimit_s, "ulimit -v 8000000;");
    const auto count = static_cast<std::size_t>(GetParam());
    const std::vector<std::string> errors = testing::error_lines(outcome.output);
    const bool is_accepted = outcome.exit_code == 0 && one.verdict != DamageResult::refuse;
    if (is_accepted || one.verdict == DamageResult::accept) {
      EXPECT_EQ(outcome.rank_codes, std::vector<int>(count, 0)) << outcome.output;
      EXPECT_TRUE(errors.empty()) << outcome.output;
      return;
    }
    EXPECT_EQ(outcome.exit_code, kData) << outcome.output;
    EXPECT_EQ(outcome.rank_codes, std::vector<int>(count, kData)) << outcome.output;
    ASSERT_EQ(errors.size(), 1U) << outcome.output;
    EXPECT_NE(errors[0].find(one.file), std::string::npos) << one.file << "\n" << errors[0];
    EXPECT_TRUE(states_a_remedy(errors[0])) << errors[0];
    for (const std::string& word : one.words) {
      EXPECT_NE(errors[0].find(word), std::string::npos) << word << "\n" << errors[0];
    }
  }

  testing::TemporaryFolder folder_;
};

TEST_P(MalformedDataTest, EachFaultGetsOneSentence) {
  std::vector<Case> cases = CaseWriter(folder_).take();
  ASSERT_GT(cases.size(), 80U);
  if (!testing::is_long_run()) {
    std::mt19937_64 random(testing::test_seed() + static_cast<std::uint64_t>(GetParam()));
    std::shuffle(cases.begin(), cases.end(), random);
    cases.resize(GetParam() == 1 ? 16 : 6);
  }
  for (const Case& one : cases) expect_verdict(one);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MalformedDataTest, ::testing::Values(1, 2),
                         [](const auto& test) { return "np" + std::to_string(test.param); });

}  // namespace malformed_data_test
}  // namespace lockstep
