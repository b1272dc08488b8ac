// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/script_records.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "support/sentence.hpp"
#include "zip_support.hpp"

namespace lockstep::checkpoints {
namespace script_records_test {

std::string fault_of(const std::vector<ZipEntry>& records) {
  const std::string file = zip_of(records);
  return fault_of_script(MemorySource(std::as_bytes(std::span(file))));
}

const std::vector<ZipEntry> kScript = {{.name = "net/data.pkl", .bytes = "x"},
                                       {.name = "net/code/__torch__/torchvision/models/resnet.py", .bytes = "code"},
                                       {.name = "net/constants.pkl", .bytes = "y"}};

// The code of a module has the path of its Python package, such as torchvision.models.
TEST(ScriptRecordsTest, FoldersOfTheCodeDoNotCount) { EXPECT_EQ(fault_of(kScript), ""); }

TEST(ScriptRecordsTest, OtherArchivesAreNamed) {
  for (const char* const name : {"net/serialized_exported_program.json", "net/archive_format", "net/models/m.json"}) {
    std::vector<ZipEntry> records = kScript;
    records.push_back({.name = name, .bytes = "z"});
    EXPECT_NE(fault_of(records).find("torch.export"), std::string::npos) << name;
  }
  EXPECT_NE(fault_of({{.name = "net/data.pkl", .bytes = "x"}}).find("tensors without code"), std::string::npos);
  EXPECT_EQ(fault_of({{.name = "readme", .bytes = "x"}}), "is a zip archive, but not a TorchScript archive");
}

TEST(ScriptRecordsTest, EachRecordIsRead) {
  for (std::size_t i = 0; i < kScript.size(); ++i) {
    std::vector<ZipEntry> records = kScript;
    records[i].has_wrong_crc = true;
    const std::string sentence = testing::sentence_of<CheckpointError>([&] { fault_of(records); });
    EXPECT_NE(sentence.find(records[i].name), std::string::npos) << sentence;
  }
}

}  // namespace script_records_test
}  // namespace lockstep::checkpoints
