// SPDX-License-Identifier: BSD-3-Clause
// Other programs read our files: HDF5's own tools and h5py, where they are installed.
#include <array>
#include <cstdio>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace interop_test {

/// The text that a shell command prints; its exit status through `status`.
std::string output_of(const std::string& command, int& status) {
  std::string output;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer = {};
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), got);
  }
  status = ::pclose(pipe);
  return output;
}

bool succeeds(const std::string& command) {
  int status = 0;
  output_of(command, status);
  return status == 0;
}

Archive archive_for_others() {
  Archive archive = sample(12);
  archive.put("/x/bfloat16", array_of<std::uint16_t>(DType::bfloat16, {3}, {0x3F80, 0xC020, 0x7F80}));  // 1, -2.5, inf
  archive.put("/x/float16", array_of<std::uint16_t>(DType::float16, {2}, {0x3C00, 0xC100}));            // 1, -2.5
  archive.put("/x/bool", array_of<std::uint8_t>(DType::boolean, {3}, {1, 0, 1}));
  archive.put("/x/complex64", array_of<float>(DType::complex64, {1}, {1.5F, -2}));
  archive.put("/x/empty", Array{.dtype = DType::float64, .shape = {0, 4}, .bytes = {}, .owner = nullptr});
  archive.set("/x", "note", std::string("schön"));
  return archive;
}

TEST(InteropTest, H5lsReadsValues) {
  if (!succeeds("h5ls --version")) GTEST_SKIP() << "h5ls is not installed";
  const TemporaryFolder directory;
  const std::string file = write(directory.path(), 12, archive_for_others()) + "/state.h5";
  int status = 0;
  const std::string output = output_of("h5ls -r -d '" + file + "/model/params/fc.bias'", status);
  EXPECT_EQ(status, 0) << output;
  EXPECT_NE(output.find("Dataset {3}"), std::string::npos) << output;
  EXPECT_NE(output.find("1, 2, 3"), std::string::npos) << output;
}

TEST(InteropTest, H5pyReadsEveryKindOfValue) {
  std::string python;
  for (const std::string candidate : {"python3", "/usr/bin/python3"}) {
    if (python.empty() && succeeds(candidate + " -c 'import h5py'")) python = candidate;
  }
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py is installed";
  const TemporaryFolder directory;
  const std::string file = write(directory.path(), 12, archive_for_others()) + "/state.h5";
  put_bytes(directory / "read.py", R"(import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(int(f.attrs["step"]), f["optim/0"].attrs["lr"], f["x"].attrs["note"].decode())
    w = f["model/params/fc.weight"]
    print(w.shape, w.dtype, float(w[29, 99]), w.attrs["torch_dtype"].decode())
    print(int(f["optim/0/step"][()]), bytes(f["meta/config"][:7]).decode())
    print(f["x/bfloat16"][:].tolist(), f["x/float16"][:].tolist(), f["x/float16"].dtype)
    print(f["x/bool"][:].tolist(), f["x/bool"].dtype, f["x/complex64"][0], f["x/empty"].shape)
    print(sorted(f["x"]) == ["bfloat16", "bool", "complex64", "empty", "float16"])
)");
  int status = 0;
  EXPECT_EQ(output_of(python + " '" + (directory / "read.py") + "' '" + file + "'", status),
            "12 0.1 schön\n"
            "(30, 100) float32 3011.0 float32\n"
            "12 [optim]\n"
            "[1.0, -2.5, inf] [1.0, -2.5] float16\n"
            "[True, False, True] bool (1.5-2j) (0, 4)\n"
            "True\n");
  EXPECT_EQ(status, 0);
}

}  // namespace interop_test
}  // namespace lockstep::checkpoints
