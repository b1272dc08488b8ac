// SPDX-License-Identifier: BSD-3-Clause
// Runs the commands and compiles the programs of README.md and docs/, page by page. The words behind "sh" of a block
// say how: `exit=N` expects this exit code, and the lines of the block "text" that follows in its output;
// `program=NAME` needs the program of this name and is not run unless the page shows it; `long` runs only in long
// tests; `gpu`, `hosts`, `slurm`, `data` and `doxygen` need what a test machine may lack and are not run. Behind any
// language, `file=PATH` marks an excerpt of a file of the clone, which must have the same text. Blocks `cpp
// program=NAME` are one program in several parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace lockstep {
namespace docs_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return fs::absolute(value != nullptr ? value : ".").string();
}

const std::string& source() {
  static const std::string folder = variable("LOCKSTEP_SOURCE_DIR");
  return folder;
}

struct Block {
  int line = 0;  ///< number of its first line, from 1
  std::string language;
  std::set<std::string> marks;
  std::string text;

  std::optional<std::string> value(const std::string& name) const {
    for (const std::string& mark : marks) {
      if (mark.starts_with(name + "=")) return mark.substr(name.size() + 1);
    }
    return std::nullopt;
  }
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  std::istringstream lines(page);
  bool is_inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      is_inside = !is_inside;
      if (!is_inside) continue;
      std::istringstream words(line.substr(3));
      Block block;
      block.line = number + 1;
      words >> block.language;
      for (std::string word; words >> word;) block.marks.insert(word);
      blocks.push_back(std::move(block));
    } else if (is_inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

bool needs_more_than_here(const Block& block) {
  const auto has = [&block](const char* mark) { return block.marks.contains(mark); };
  return has("gpu") || has("hosts") || has("slurm") || has("data") || has("doxygen") ||
         (has("long") && !testing::is_long_run());
}

/// The page without its blocks.
std::string prose_of(const std::string& page) {
  std::string prose;
  std::istringstream lines(page);
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) is_inside = !is_inside;
    if (!is_inside) prose += line + "\n";
  }
  return prose;
}

/// "points" of a program that begins with "// points.cpp: ...".
std::string program_name(const Block& block) {
  if (const std::optional<std::string> name = block.value("program")) return *name;
  const std::size_t end = block.text.find(".cpp");
  return end == std::string::npos ? "" : block.text.substr(3, end - 3);
}

/// The programs of a page. The parts of a program are joined where the last of them is.
std::vector<Block> with_joined_parts(const std::vector<Block>& blocks) {
  std::vector<Block> joined;
  for (const Block& block : blocks) {
    joined.push_back(block);
    if (block.language != "cpp" || !block.value("program")) continue;
    const auto first = std::find_if(joined.begin(), std::prev(joined.end()), [&block](const Block& other) {
      return other.language == "cpp" && other.value("program") == block.value("program");
    });
    if (first == std::prev(joined.end())) continue;
    joined.back().text = first->text + block.text;
    joined.erase(first);
  }
  return joined;
}

/// The pages, below the folder with the sources.
std::vector<std::string> pages() {
  std::vector<std::string> found = {"README.md"};
  for (const fs::directory_entry& entry : fs::directory_iterator(source() + "/docs")) {
    if (entry.path().extension() == ".md") found.push_back("docs/" + entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// A page's commands run one after another in a folder of their own, in which build/, docs/, tests/ and tools/ are
/// those of the clone.
class DocsTest : public ::testing::TestWithParam<std::string> {
 protected:
  DocsTest() {
    fs::create_directory_symlink(variable("LOCKSTEP_BINARY_DIR"), folder_ / "build");
    fs::create_directory_symlink(source() + "/tools", folder_ / "tools");
    fs::create_directory_symlink(source() + "/docs", folder_ / "docs");
    fs::create_directory_symlink(source() + "/tests", folder_ / "tests");
    write_images("photos/circles", 32);
    write_images("photos/squares", 32);
    write_images("new", 4);
    // ccache, if it is there, knows the programs of a page again, whatever the name of the folder is.
    static const bool has_ccache = testing::run_shell("command -v ccache").exit_code == 0;
    if (has_ccache) setenv("CMAKE_CXX_COMPILER_LAUNCHER", "ccache", 1);
    setenv("CCACHE_BASEDIR", folder_.path().c_str(), 1);
    setenv("CCACHE_NOHASHDIR", "true", 1);
  }

  /// Images of 32 x 32 pixels for the pages that read photos/ or new/.
  void write_images(const std::string& name, int count) const {
    fs::create_directories(folder_.path(name));
    for (int i = 0; i < count; ++i) {
      std::string pixels;
      for (int byte = 0; byte < 32 * 32 * 3; ++byte) pixels += static_cast<char>((byte * (i + 3)) % 251);
      testing::write_file(folder_.path(name) + "/" + std::to_string(i) + ".ppm", "P6\n32 32\n255\n" + pixels);
    }
  }

  std::string place(const Block& block) const { return GetParam() + ":" + std::to_string(block.line); }

  void run(const Block& block, const Block* next) const {
    const bool is_of_clone = block.text.starts_with("tools/");
    const std::string command = "cd " + (is_of_clone ? source() : folder_.path()) +
                                " && export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 "
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 && set -e\n" +
                                block.text;
    const ProgramResult outcome = testing::run_shell(command, 900);
    const std::optional<std::string> code = block.value("exit");
    EXPECT_EQ(outcome.exit_code, code ? std::stoi(*code) : 0) << place(block) << "\n" << block.text << outcome.output;
    if (!code || next == nullptr || next->language != "text") return;
    std::istringstream lines(next->text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_NE(outcome.output.find(line), std::string::npos) << place(*next) << ": " << line << "\n" << outcome.output;
    }
  }

  void compile(const Block& block) const {
    const std::string name = program_name(block);
    const std::string project = folder_.path(name + "_project");
    fs::create_directory(project);
    testing::write_file(project + "/" + name + ".cpp", block.text);
    testing::write_file(project + "/CMakeLists.txt",
                        "cmake_minimum_required(VERSION 3.25)\nproject(example LANGUAGES CXX)\nfind_package(Lockstep "
                        "REQUIRED)\nadd_executable(" +
                            name + " " + name + ".cpp)\ntarget_link_libraries(" + name +
                            " PRIVATE lockstep::lockstep)\n");
    const std::string built = project + "/build";
    const ProgramResult outcome = testing::run_shell(
        "cmake -S " + project + " -B " + built + " -DLockstep_DIR=" + folder_.path("build") + " && cmake --build " +
            built + " && ln -s " + built + "/" + name + " " + folder_.path(name),
        900);
    ASSERT_EQ(outcome.exit_code, 0) << place(block) << "\n" << outcome.output;
  }

  testing::TemporaryFolder folder_;
};

// The short form builds only the program of docs/tutorial.md, by the commands of this page.
TEST_P(DocsTest, CommandsWork) {
  const std::vector<Block> blocks = with_joined_parts(blocks_of(testing::read_file(source() + "/" + GetParam())));
  std::set<std::string> programs;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (block.value("file")) continue;
    if (block.language == "cpp") {
      if (!testing::is_long_run()) continue;
      compile(block);
      programs.insert(program_name(block));
    } else if (block.language == "sh") {
      const std::optional<std::string> program = block.value("program");
      if (needs_more_than_here(block) || (program && !programs.contains(*program))) {
        std::cout << "not run: " << place(block) << "\n";
        continue;
      }
      run(block, i + 1 < blocks.size() ? &blocks[i + 1] : nullptr);
    }
    if (HasFatalFailure()) return;
  }
}

// A block "text" is output or a file: commands are in blocks "sh", which run or say why they do not.
TEST_P(DocsTest, TextsAreNotCommands) {
  const std::set<std::string> programs = {"build/trainer", "build/ckpt",  "trainer",    "ckpt",       "mpirun",
                                          "mpiexec",       "srun",        "sbatch",     "cmake",      "ctest",
                                          "make",          "tools/setup", "tools/test", "tools/train"};
  for (const Block& block : blocks_of(testing::read_file(source() + "/" + GetParam()))) {
    if (block.language != "text" && !block.language.empty()) continue;
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_FALSE(programs.contains(line.substr(0, line.find(' ')))) << place(block) << ": " << line;
    }
  }
}

// Links to other pages and files lead somewhere.
TEST_P(DocsTest, LinksLeadSomewhere) {
  const std::string page = prose_of(testing::read_file(source() + "/" + GetParam()));
  const fs::path folder = fs::path(source() + "/" + GetParam()).parent_path();
  for (std::size_t position = page.find("]("); position != std::string::npos;
       position = page.find("](", position + 1)) {
    const std::string target = page.substr(position + 2, page.find(')', position) - position - 2);
    if (target.starts_with("http") || target.starts_with("#")) continue;
    const std::string file = target.substr(0, target.find('#'));
    EXPECT_TRUE(fs::exists(folder / file)) << GetParam() << ": " << target;
  }
}

// Excerpts are parts of the files that they name.
TEST_P(DocsTest, ExcerptsAreInTheirFiles) {
  for (const Block& block : blocks_of(testing::read_file(source() + "/" + GetParam()))) {
    const std::optional<std::string> file = block.value("file");
    if (!file) continue;
    EXPECT_NE(testing::read_file(source() + "/" + *file).find(block.text), std::string::npos) << place(block);
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, DocsTest, ::testing::ValuesIn(pages()), [](const auto& page) {
  std::string name = page.param.substr(0, page.param.size() - 3);
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '_');
  return name;
});

TEST(DocsProgramsTest, TheListOfPagesIsComplete) {
  const std::string list = testing::read_file(source() + "/docs/README.md");
  for (const fs::directory_entry& entry : fs::directory_iterator(source() + "/docs")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".md" || name == "README.md") continue;
    EXPECT_NE(list.find("](" + name + ")"), std::string::npos) << name;
  }
}

// docs/configuration.md is what tools/docs makes of --help.
TEST(DocsProgramsTest, GeneratedPagesAreUpToDate) {
  const ProgramResult outcome = testing::run_shell(source() + "/tools/docs --check " + variable("LOCKSTEP_BINARY_DIR"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace docs_test
}  // namespace lockstep
